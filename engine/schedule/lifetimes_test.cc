#include "engine/schedule/lifetimes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "engine/schedule/generators/generators.h"
#include "engine/schedule/testing/schedule_testing.h"

namespace strata::schedule {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::FromRows;
using ::testing::IsEmpty;
using ::testing::SizeIs;

void ExpectDeepSpeedsBuffers(const char* name, const char* golden_name) {
  const auto golden = Golden("deepspeed")[golden_name];
  EXPECT_EQ(golden.size(), 7u);
  for (const auto& entry : golden) {
    const Program program =
        Generate(name, {.ranks = entry["stages"], .micro_batches = entry["micro_batches"]});
    std::vector<int> expected;
    for (const auto& stage : entry["per_stage"]) expected.push_back(stage["num_pipe_buffers"]);
    EXPECT_EQ(Buffers(program), expected) << entry["stages"] << " " << entry["micro_batches"];
  }
}

TEST(Buffers, OfOneFOneBAreDeepSpeeds) { ExpectDeepSpeedsBuffers("1f1b", "train_schedule"); }

TEST(Buffers, OfInferenceAreDeepSpeeds) {
  ExpectDeepSpeedsBuffers("inference", "inference_schedule");
}

TEST(Buffers, SpanTheMicroBatchesAliveAtOnce) {
  // Micro-batches 0 and 3 are alive together and would collide with m mod 3.
  EXPECT_THAT(StageBuffers(FromRows({"0F0 0F1 0B1 0F2 0B2 0F3 0B3 0B0"})), ElementsAre(4));
  // At most two neighbours are alive at a time, whatever the order.
  EXPECT_THAT(StageBuffers(FromRows({"0F3 0F2 0B3 0F1 0B2 0F0 0B1 0B0"})), ElementsAre(2));
}

TEST(Buffers, StayUntilW) {
  EXPECT_THAT(StageBuffers(FromRows({"0F0 0I0 0F1 0I1 0F2 0I2 0W0 0W1 0W2"})), ElementsAre(3));
  EXPECT_THAT(StageBuffers(FromRows({"0F0 0I0 0W0 0F1 0I1 0W1 0F2 0I2 0W2"})), ElementsAre(2));
}

TEST(Buffers, CountEarlyReceivesAndLateSends) {
  const Program early = FromRows(
      {"0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2", "1RECV_F0 1RECV_F1 1RECV_F2 1F0 1F1 1F2"});
  EXPECT_THAT(StageBuffers(early), ElementsAre(2, 3));
  const Program late = FromRows(
      {"0F0 0F1 0F2 0SEND_F0 0SEND_F1 0SEND_F2", "1RECV_F0 1F0 1RECV_F1 1F1 1RECV_F2 1F2"});
  EXPECT_THAT(StageBuffers(late), ElementsAre(3, 2));
}

TEST(Buffers, KeepWhatANeighbourOnTheRankHasNotReadYet) {
  EXPECT_THAT(StageBuffers(FromRows({"0F0 0F1 0F2 1F0 1F1 1F2"})), ElementsAre(3, 2));
}

TEST(Buffers, IgnoreMisplacedActions) {
  Program program = FromRows({"0F0 9F0 0F7 0B0"});
  program.stage_ranks = {0};
  program.micro_batches = 1;
  EXPECT_THAT(StageBuffers(program), ElementsAre(2));
  EXPECT_THAT(FindOverwrites(program, {2}), IsEmpty());
}

TEST(FindOverwrites, NamesTheFirstOfARow) {
  const Program program = FromRows({"0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3"});
  EXPECT_THAT(FindOverwrites(program, {3}), IsEmpty());
  const auto overwrites = FindOverwrites(program, {2});
  ASSERT_THAT(overwrites, SizeIs(1));
  EXPECT_EQ(overwrites[0].rank, 0);
  EXPECT_EQ(overwrites[0].position, 2);
  EXPECT_EQ(overwrites[0].buffer, Buffer::kInput);
  EXPECT_EQ(overwrites[0].stage, 0);
  EXPECT_EQ(overwrites[0].slot, 0);
  EXPECT_EQ(overwrites[0].old_micro_batch, 0);
  EXPECT_EQ(overwrites[0].new_micro_batch, 2);
}

TEST(FindOverwrites, SeesEveryKindOfBuffer) {
  const auto buffer_of = [](const std::vector<std::string>& rows, std::vector<int> counts) {
    const auto overwrites = FindOverwrites(FromRows(rows), counts);
    return overwrites.empty() ? -1 : static_cast<int>(overwrites[0].buffer);
  };
  EXPECT_EQ(buffer_of({"0F0 0SEND_F0 0F1 0SEND_F1", "1RECV_F0 1RECV_F1 1F0 1F1"}, {1, 1}),
            static_cast<int>(Buffer::kInput));
  EXPECT_EQ(buffer_of({"0F0 0F1 0SEND_F0 0SEND_F1", "1RECV_F0 1F0 1RECV_F1 1F1"}, {1, 1}),
            static_cast<int>(Buffer::kOutput));
  EXPECT_EQ(buffer_of({"0RECV_B0 0RECV_B1 0B0 0B1", "1B0 1SEND_B0 1B1 1SEND_B1"}, {1, 1}),
            static_cast<int>(Buffer::kOutputGrad));
  EXPECT_EQ(buffer_of({"0RECV_B0 0B0 0RECV_B1 0B1", "1B0 1B1 1SEND_B0 1SEND_B1"}, {1, 1}),
            static_cast<int>(Buffer::kInputGrad));
}

TEST(PeakActivations, OfTheKnownSchedules) {
  const Sizes sizes{.ranks = 4, .micro_batches = 8};
  EXPECT_THAT(PeakActivations(Generate("gpipe", sizes)), Each(8));
  EXPECT_THAT(PeakActivations(Generate("1f1b", sizes)), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(PeakActivations(Generate("inference", sizes)), Each(1));
}

TEST(PeakActivations, OfTorchsV) {
  // ZBV never keeps more than 2P chunks; two chunks are as large as a stage of 1F1B.
  const auto golden = Golden("torch_pipelining")["schedules"];
  for (const auto& entry : golden) {
    if (entry["schedule"] != "ScheduleZBVZeroBubble") continue;
    const int ranks = entry["ranks"];
    EXPECT_THAT(PeakActivations(testing::FromTorch(entry)), Each(2 * ranks));
  }
}

TEST(PeakActivations, LastUntilWAndThroughOverlaps) {
  EXPECT_THAT(PeakActivations(FromRows({"0F0 0I0 0F1 0I1 0W0 0W1"})), ElementsAre(2));
  EXPECT_THAT(PeakActivations(FromRows({"0F0 (0F1;0B0)OVERLAP_F_B 0B1"})), ElementsAre(2));
}

TEST(PeakActivations, StartAtRWhereThereIsOne) {
  EXPECT_THAT(PeakActivations(FromRows({"0F0 0F1 0F2 0R0 0B0 0R1 0B1 0R2 0B2"})), ElementsAre(1));
  EXPECT_THAT(PeakActivations(FromRows({"0F0 0F1 0F2 0B0 0R1 0B1 0R2 0B2"})), ElementsAre(2));
}

}  // namespace
}  // namespace strata::schedule
