// Tests of reports on undamaged and damaged saves.
#include "launcher/report/inspect_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/testing.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class InspectTest : public testing::Test {
 protected:
  InspectTest() {
    SaveFolder folder(test_.path(), 0);
    WriteTestSave(folder, 20);
    save_ = WriteTestSave(folder, 40);
  }
  TestFolder test_;
  std::string save_;
};

TEST_F(InspectTest, ASave) {
  const Inspection inspection = Inspect(save_ + "/");
  EXPECT_TRUE(inspection.whole);
  EXPECT_THAT(inspection.text,
              AllOf(HasSubstr("step 40 of the job \"net\", adamw, seed 1234\n"),
                    HasSubstr("a step: micro-batches 4, micro-batch size 8\n"),
                    HasSubstr("classes: \"cat\", \"d\\nog\"\n"),
                    ContainsRegex("3.weight#exp_avg +moment +float32 +\\(4, 6\\) +96 +3 +ok\n"),
                    ContainsRegex("norm.scale +parameter +float32 +\\(\\) +4 +1 +ok\n"),
                    HasSubstr("4 tensors, 216 B, whole\n")));
}

TEST_F(InspectTest, ASaveUnderAnotherName) {
  const std::string good = test_.Inside("good");
  std::filesystem::copy(save_, good);
  const Inspection inspection = Inspect(good);
  EXPECT_TRUE(inspection.whole);
  EXPECT_THAT(inspection.text, HasSubstr(good + ": step 40 of the job \"net\""));
}

TEST_F(InspectTest, EventsAreOfFlightRecords) {
  EXPECT_EQ(ErrorOf([&] { Inspect(save_, 3); }), Str("--events: ", save_, " is no flight record"));
  const std::string path = save_ + "/rank-00002.safetensors";
  EXPECT_THAT(ErrorOf([&] { Inspect(path, 3); }), HasSubstr("is no flight record"));
}

TEST_F(InspectTest, DamageIsNamed) {
  const std::string path = save_ + "/rank-00002.safetensors";
  std::string bytes = ReadText(path);
  bytes.back() ^= 4;
  WriteText(path, bytes);
  const Inspection inspection = Inspect(save_);
  EXPECT_FALSE(inspection.whole);
  EXPECT_THAT(inspection.text, AllOf(ContainsRegex("3.weight#exp_avg .* DAMAGED\n"),
                                     ContainsRegex("3.weight +parameter .* ok\n"),
                                     HasSubstr("tensor \"3.weight#exp_avg\" is damaged: ")));
}

TEST_F(InspectTest, AFolderOfSaves) {
  EXPECT_THAT(
      Inspect(test_.path()).text,
      AllOf(ContainsRegex("step-00000020 +whole\n"), ContainsRegex("step-00000040 +whole\n"),
            HasSubstr("latest: step-00000040\n"), HasSubstr("step 40 of")));
}

TEST_F(InspectTest, AFolderWhoseLatestIsGone) {
  WriteText(save_ + "/manifest.json", "{}");
  const Inspection damaged = Inspect(test_.path());
  EXPECT_FALSE(damaged.whole);
  EXPECT_THAT(damaged.text, AllOf(ContainsRegex("step-00000020 +whole\n"),
                                  ContainsRegex("step-00000040 .*the manifest is damaged")));
  WriteText(test_.Inside("latest"), "");
  EXPECT_THAT(Inspect(test_.path()).text, HasSubstr("latest is damaged: it names no save\n"));
}

TEST_F(InspectTest, APlainFile) {
  const std::string out = test_.Inside("out.safetensors");
  Merge(*Checkpoint::Open(save_), out, [](const SavedTensor&) { return true; });
  EXPECT_THAT(Inspect(out).text,
              AllOf(HasSubstr("safetensors, 4 tensors, 216 B, without digests\n"),
                    HasSubstr("metadata \"format\" = \"pt\"\n"),
                    ContainsRegex("3.weight +F32 +\\(4, 6\\) +96\n")));
}

TEST_F(InspectTest, WhatIsNone) {
  EXPECT_THAT(ErrorOf([&] { Inspect(test_.Inside("none")); }), HasSubstr("No such file"));
  EXPECT_THAT(ErrorOf([&] { Inspect(save_ + "/manifest.json"); }),
              HasSubstr("no safetensors file"));
  TestFolder empty;
  EXPECT_THAT(ErrorOf([&] { Inspect(empty.path()); }), HasSubstr("nothing was saved in"));
  const std::string fifo = test_.Inside("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0666), 0);
  EXPECT_THAT(ErrorOf([&] { Inspect(fifo); }), HasSubstr("fifo: it is no regular file"));
}

TEST_F(InspectTest, AFolderWithTheBestSaveAlone) {
  TestFolder runs;
  SaveFolder best(BestFolder(runs.path()), 1);
  WriteTestSave(best, 20);
  EXPECT_EQ(ErrorOf([&] { Inspect(runs.path()); }),
            Str("nothing was saved in ", runs.path(), " but its best save, which is in ",
                runs.path(), "/best"));
}

}  // namespace
}  // namespace strata::launcher
