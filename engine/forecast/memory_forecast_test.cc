#include "engine/forecast/memory_forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/size_class.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/forecast/forecast_text.h"
#include "engine/forecast/planned_program.h"
#include "engine/plan/plan_testing.h"
#include "engine/schedule/lifetimes.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

Job AdamJob() {
  Job job = DeepJob(2, 8);
  job.optimizer = OptimizerSpec();
  job.optimizer.type = "adam";
  return job;
}

std::vector<RankMemory> MemoryOf(const Job& job) {
  const Plan plan = PlanJob(job, {}, nullptr);
  const int micro_batches = static_cast<int>(plan.batch.micro_batches);
  return ForecastMemory(job, plan, CostsOf(job, plan, nullptr),
                        TrainingProgram(job, plan, micro_batches, nullptr));
}

TEST(ForecastMemoryTest, WeightsGradientsAndMomentsLieInFlatBuffers) {
  const std::vector<RankMemory> ranks = MemoryOf(AdamJob());
  ASSERT_EQ(ranks.size(), 2u);
  const int64_t values = AllocatedBytes(4 * 4 * (64 * 64 + 64));
  for (const RankMemory& rank : ranks) {
    EXPECT_EQ(rank.weights, values);
    EXPECT_EQ(rank.gradients, values);
    EXPECT_EQ(rank.optimizer, 2 * values);
  }
}

TEST(ForecastMemoryTest, ZeroOneSharesTheMoments) {
  Job job = AdamJob();
  job.parallel.data = 4;
  const int64_t whole = MemoryOf(job)[0].optimizer;
  job.zero = 1;
  EXPECT_NEAR(MemoryOf(job)[0].optimizer, whole / 4, 0.15 * whole / 4);
}

TEST(ForecastMemoryTest, ACheckedStepNeedsCopiesInPlaceOfActivations) {
  Job job = AdamJob();
  EXPECT_EQ(MemoryOf(job)[0].check, 0);
  job.check.every = 100;
  const RankMemory rank = MemoryOf(job)[0];
  const int64_t lasting = rank.weights + rank.gradients + rank.optimizer;
  EXPECT_NEAR(rank.check, 2 * lasting, 0.01 * lasting);
  EXPECT_EQ(rank.total(), lasting + std::max(rank.activations + rank.buffers, rank.check));
  job.memory = rank.total() - 1;
  EXPECT_THROW(PlanJob(job, {}, nullptr), ConfigError);
  job.check.every = 0;
  PlanJob(job, {}, nullptr);
}

/// The job's layers are one block of gradients unless blocks are small. Stages: 4 layers each.
TEST(ForecastMemoryTest, ZeroTwoHasGradientsWhileTheyAreAddedUp) {
  constexpr int64_t kLayer = 4 * (64 * 64 + 64);
  const WithGradientBlocks blocks(kLayer);
  Job job = AdamJob();
  job.parallel.data = 4;
  const auto gradients = [&](const char* schedule, int stages_per_rank, int64_t micro_batches) {
    job.schedule.name = schedule;
    job.stages_per_rank = stages_per_rank;
    job.batch = {.micro_batches = micro_batches, .micro_batch_size = 1};
    job.zero = 1;
    const RankMemory whole = MemoryOf(job)[0];
    job.zero = 2;
    const RankMemory late = MemoryOf(job)[0];
    EXPECT_EQ(late.optimizer, whole.optimizer);
    EXPECT_EQ(late.weights, whole.weights);
    EXPECT_LE(late.total(), whole.total());
    const std::string text = MemoryText({late});
    EXPECT_EQ(text.find("zero = 2 saves little or nothing over zero = 1 on rank 0: ") != text.npos,
              late.gradients >= 4 * kLayer);
    return late.gradients;
  };
  EXPECT_EQ(gradients("1f1b", 1, 4), 4 * kLayer);
  // The share, one block that is summed, and one that fills up.
  EXPECT_LE(gradients("1f1b", 1, 1), 3 * kLayer);
  // Two stages of two layers: one is summed up, and the other's share is there.
  EXPECT_EQ(gradients("looped_bfs", 2, 4), 2 * kLayer + kLayer / 2);
  EXPECT_EQ(gradients("interleaved_1f1b", 2, 4), 4 * kLayer);
}

/// A group of all parameters with another optimizer than the job's.
ParameterGroup GroupOf(const char* type) {
  ParameterGroup group;
  group.type = type;
  group.options.Set("momentum", 0.0);
  return group;
}

TEST(ForecastMemoryTest, GroupsHaveTheStateOfTheirOwnOptimizer) {
  Job job = AdamJob();
  const RankMemory adam = MemoryOf(job)[0];
  job.optimizer.groups = {GroupOf("sgd")};
  const RankMemory plain = MemoryOf(job)[0];
  EXPECT_EQ(plain.optimizer, 0);
  EXPECT_EQ(plain.weights, adam.weights);

  job.optimizer.type = "sgd";
  job.optimizer.options.Set("momentum", 0.0);
  job.optimizer.groups = {GroupOf("adam")};
  EXPECT_EQ(MemoryOf(job)[0].optimizer, adam.optimizer);
  EXPECT_EQ(MemoryOf(job)[0].weights, adam.weights);
  job.parallel.data = 4;
  job.zero = 1;
  EXPECT_EQ(MemoryOf(job)[0].optimizer, adam.optimizer / 4);
}

TEST(ForecastMemoryTest, TiedLayersOfOneStageShareTheStateOfTheirGroup) {
  Job job = AdamJob();
  job.parallel.pipe = 1;
  for (int i : {0, 2}) {
    job.layers[i].tied_key = "t";
    job.layers[i].tied_weights = {"weight"};
  }
  const int64_t adam = MemoryOf(job)[0].optimizer;
  job.optimizer.groups = {GroupOf("sgd")};
  EXPECT_EQ(MemoryOf(job)[0].optimizer, 0);
  job.optimizer.type = "sgd";
  job.optimizer.options.Set("momentum", 0.0);
  job.optimizer.groups = {GroupOf("adam")};
  EXPECT_EQ(MemoryOf(job)[0].optimizer, adam);
}

TEST(ForecastMemoryTest, GPipeKeepsAllMicroBatchesAndOneForwardOneBackwardTheirDistance) {
  Job job = AdamJob();
  job.schedule.name = "gpipe";
  const std::vector<RankMemory> gpipe = MemoryOf(job);
  job.schedule.name = "1f1b";
  const std::vector<RankMemory> alternating = MemoryOf(job);
  // On rank 0 two micro-batches are live between forward and backward instead of eight, on rank 1
  // one.
  EXPECT_EQ(gpipe[0].activations, 4 * alternating[0].activations);
  EXPECT_GT(gpipe[1].activations, 6 * alternating[1].activations);
  EXPECT_GT(gpipe[0].total(), alternating[0].total());
}

TEST(ForecastMemoryTest, RecomputationKeepsLess) {
  Job job = AdamJob();
  job.schedule.name = "gpipe";
  const std::vector<RankMemory> kept = MemoryOf(job);
  job.recompute.method = RecomputeSpec::Method::kStages;
  const std::vector<RankMemory> again = MemoryOf(job);
  EXPECT_LT(again[0].total(), kept[0].total());
  // Every micro-batch keeps only its input; one of them has everything that its stage keeps.
  EXPECT_LT(again[0].activations, kept[0].activations / 2);
}

TEST(ForecastMemoryTest, MoreMicroBatchesNeverNeedLess) {
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "zb_h2"}) {
    Job job = AdamJob();
    job.schedule.name = schedule;
    int64_t before = 0;
    for (int micro_batches : {1, 2, 4, 8}) {
      job.batch = {.micro_batches = micro_batches, .micro_batch_size = 64};
      const int64_t now = LargestTotal(MemoryOf(job));
      EXPECT_GE(now, before) << schedule << " " << micro_batches;
      before = now;
    }
  }
}

TEST(ForecastMemoryTest, TiedLayersOfOneStageShareTheirCopyInHalfPrecision) {
  Job job = AdamJob();
  job.parallel.pipe = 1;
  const auto saved_by_the_tie = [](Job whole) {
    const int64_t apart = MemoryOf(whole)[0].weights;
    for (int i : {0, 2}) {
      whole.layers[i].tied_key = "t";
      whole.layers[i].tied_weights = {"weight"};
    }
    return apart - MemoryOf(whole)[0].weights;
  };
  const int64_t of_values = saved_by_the_tie(job);
  job.precision = {.name = "bf16", .compute = DType::kBFloat16};
  EXPECT_EQ(saved_by_the_tie(job), of_values + 2 * 64 * 64);
}

TEST(ForecastMemoryTest, MomentsHaveTheTypeOfTheParameters) {
  Job job = AdamJob();
  job.precision = {.name = "bf16", .compute = DType::kBFloat16, .params = DType::kBFloat16};
  for (const RankMemory& rank : MemoryOf(job)) {
    EXPECT_EQ(rank.optimizer, 2 * AllocatedBytes(2 * 4 * (64 * 64 + 64)));
  }
}

/// Averages (ema) are kept in float32 although the parameters are bf16, and evaluations hold the
/// values beside them.
TEST(ForecastMemoryTest, AveragesOfBf16AreInFloat32) {
  Job job = AdamJob();
  job.optimizer.ema = 0.9;
  const int64_t elements = 4 * (64 * 64 + 64);
  EXPECT_EQ(MemoryOf(job)[0].optimizer, 3 * AllocatedBytes(4 * elements));
  job.precision = {.name = "bf16", .compute = DType::kBFloat16, .params = DType::kBFloat16};
  for (const RankMemory& rank : MemoryOf(job)) {
    EXPECT_EQ(rank.optimizer, 2 * AllocatedBytes(2 * elements) + AllocatedBytes(4 * elements) +
                                  AllocatedBytes(2 * elements));
  }
}

TEST(ForecastMemoryTest, TiedLayersOfOneStageShareTheirWeight) {
  Job job = AdamJob();
  job.parallel.pipe = 1;
  const int64_t apart = MemoryOf(job)[0].weights;
  for (int i : {0, 2}) {
    job.layers[i].tied_key = "t";
    job.layers[i].tied_weights = {"weight"};
  }
  EXPECT_NEAR(apart - MemoryOf(job)[0].weights, 4 * 64 * 64, 4 * 64 * 64);
  EXPECT_LT(MemoryOf(job)[0].weights, apart);
}

}  // namespace
}  // namespace strata
