#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "engine/checkpoint/files/disk_log.h"
#include "engine/checkpoint/save_folder.h"
#include "engine/checkpoint/testing.h"

namespace strata {
namespace {

using ::testing::ElementsAre;

// After a power failure the disk has what was synced; of the rest it may have anything. So a name
// must be given only to content that is already on the disk.
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
  auto log = std::make_unique<DiskLog>(test.path());
  const SaveFolder folder(test.Inside("runs/first"), 1);
  EXPECT_THAT(log->events(),
              ElementsAre("sync .", "sync runs",  //
                          "write runs/first/.tmp-owner-PID", "sync runs/first/.tmp-owner-PID",
                          "rename runs/first/.tmp-owner-PID to runs/first/.owner"));
  log.reset();
  const DiskLog next(test.path());
  const SaveFolder second(test.Inside("runs/second"), 1);
  EXPECT_THAT(next.events(),
              ElementsAre("sync runs",  //
                          "write runs/second/.tmp-owner-PID", "sync runs/second/.tmp-owner-PID",
                          "rename runs/second/.tmp-owner-PID to runs/second/.owner"));
}

}  // namespace
}  // namespace strata
