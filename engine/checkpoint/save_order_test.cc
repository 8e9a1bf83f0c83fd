#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/checkpoint/files/disk_log.h"
#include "engine/checkpoint/saves/save_folder.h"
#include "engine/checkpoint/saves/testing.h"

namespace strata {
namespace {

using ::testing::ElementsAre;

// After a power cut the disk has what was synced, and of the rest nothing or anything. So whatever
// a name leads to is on the disk before it gets that name.
TEST(SaveOrderTest, NothingIsNamedBeforeItIsOnTheDisk) {
  const TestFolder test;
  SaveFolder folder(test.path(), 1);
  const DiskLog log(test.path());
  WriteTestSave(folder, 10);
  EXPECT_THAT(log.events(), ElementsAre("write .tmp-step-10-PID/rank-00000.safetensors",
                                        "sync .tmp-step-10-PID/rank-00000.safetensors",
                                        "write .tmp-step-10-PID/rank-00001.safetensors",
                                        "sync .tmp-step-10-PID/rank-00001.safetensors",
                                        "write .tmp-step-10-PID/rank-00002.safetensors",
                                        "sync .tmp-step-10-PID/rank-00002.safetensors",
                                        "write .tmp-step-10-PID/manifest.json",
                                        "sync .tmp-step-10-PID/manifest.json",       //
                                        "sync .tmp-step-10-PID",                     //
                                        "rename .tmp-step-10-PID to step-00000010",  //
                                        "sync .",                                    //
                                        "write .tmp-latest-PID",                     //
                                        "sync .tmp-latest-PID",                      //
                                        "rename .tmp-latest-PID to latest",          //
                                        "sync ."));
}

TEST(SaveOrderTest, TheFolderItselfIsOnTheDisk) {
  const TestFolder test;
  const DiskLog log(test.path());
  const SaveFolder folder(test.Inside("runs/first/"), 1);
  EXPECT_THAT(log.events(), ElementsAre("sync .", "sync runs"));
  const SaveFolder second(test.Inside("runs/second"), 1);
  EXPECT_THAT(log.events(), ElementsAre("sync .", "sync runs", "sync runs"));
}

}  // namespace
}  // namespace strata
