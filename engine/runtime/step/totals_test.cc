#include "engine/runtime/step/totals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "engine/comm/transports/thread_transport.h"
#include "engine/runtime/step/stage_seconds.h"

namespace strata {
namespace {

using ::testing::ElementsAre;

TEST(TotalsTest, EveryRankGetsAllNumbers) {
  auto ends = MakeThreadTransports(2, {});
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&end = *ends[rank], rank] {
      Totals totals(2, 3, 2);
      if (rank == 0) {
        totals.squares[0] = 9;
        totals.lr_factor = 0.5;
      } else {
        totals.loss_sums = {6, 2};
        totals.weights = {3, 1};
        totals.squares[2] = 16;
        totals.samples = 4;
        totals.correct = 1;
        totals.counted = 2;
      }
      totals.peak_memory[rank] = 100 + rank;
      totals.data_seconds[rank] = 0.5 + rank;
      totals.busy_seconds[rank] = 1.0 + rank;
      totals.row_seconds[rank] = 3.0 + rank;
      totals.save = rank;
      totals.update_seconds = 1 + rank;
      totals.processor_share.resize(2);
      totals.processor_share[rank] = 0.5 + 0.25 * rank;
      totals.AllReduce(end);
      EXPECT_THAT(totals.loss_sums, ElementsAre(6, 2));
      EXPECT_THAT(totals.squares, ElementsAre(9, 0, 16));
      EXPECT_THAT(totals.peak_memory, ElementsAre(100, 101));
      EXPECT_THAT(totals.data_seconds, ElementsAre(0.5, 1.5));
      EXPECT_EQ(totals.weight(), 4);
      EXPECT_EQ(totals.mean_loss(), 2);
      EXPECT_EQ(totals.grad_norm(), 5.0 / 4);
      EXPECT_EQ(totals.samples, 4);
      EXPECT_EQ(totals.correct, 1);
      EXPECT_EQ(totals.counted, 2);
      EXPECT_EQ(totals.lr_factor, 0.5);
      EXPECT_THAT(totals.busy_seconds, ElementsAre(1, 2));
      EXPECT_EQ(totals.save, 1);
      EXPECT_EQ(totals.update_seconds, 3);
      EXPECT_THAT(totals.processor_share, ElementsAre(0.5, 0.75));
      EXPECT_EQ(totals.idle_share(), 1 - 3.0 / (2 * 4)) << "of the longest row";
    });
  }
}

TEST(TotalsTest, NoWeightDividesByOne) {
  Totals totals(1, 1, 1);
  totals.loss_sums = {3};
  totals.squares = {4};
  EXPECT_EQ(totals.mean_loss(), 3);
  EXPECT_EQ(totals.grad_norm(), 2);
}

TEST(StageSecondsTest, RanksMayHaveDifferentNumbersOfStages) {
  Plan plan;
  plan.topology = Topology::Make({"pipe", "data", "model"}, {2, 2, 1});
  plan.stages.resize(3);
  for (int s = 0; s < 3; ++s) {
    plan.stages[s].stage = s;
    plan.stages[s].rank = s % 2;  // pipe rank 0 has stages 0 and 2
  }
  std::vector<size_t> before;
  for (int rank = 0; rank <= 4; ++rank) before.push_back(StagesBefore(plan, rank));
  EXPECT_THAT(before, ElementsAre(0, 2, 4, 5, 6));
  Totals totals(0, 0, 4);
  totals.stage_seconds = {1, 2, 3, 4,   // of rank 0: forward and backward of stages 0 and 2
                          5, 1, 2, 6,   // of its replica
                          7, 8, 9, 0};  // of stage 1, on both
  std::vector<double> slowest;
  for (const StageSeconds& stage : MeasuredStages(totals, plan)) {
    slowest.insert(slowest.end(), {stage.forward, stage.backward});
  }
  EXPECT_THAT(slowest, ElementsAre(5, 2, 9, 8, 3, 6));
}

}  // namespace
}  // namespace strata
