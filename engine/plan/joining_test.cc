#include "engine/plan/joining.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/testing.h"
#include "engine/plan/plan_costs.h"
#include "engine/plan/plan_testing.h"
#include "engine/plan/plan_text.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Job JobOf(std::vector<LayerSpec> layers, const std::vector<int64_t>& sample, int64_t micro_batches,
          int64_t size) {
  Job job;
  job.layers = std::move(layers);
  job.input = TensorSpec{sample, DType::kFloat32};
  job.batch = {.micro_batches = micro_batches, .micro_batch_size = size};
  job.device = "cpu";
  job.optimizer.type = "adam";
  job.join = true;
  return job;
}

std::vector<int> JoinedLayers(const Plan& plan) {
  std::vector<int> joined;
  for (const LayerPlan& layer : plan.layers) {
    if (layer.is_joined) joined.push_back(layer.index);
  }
  return joined;
}

TEST(PlanJoining, TakesProductsOfFewRows) {
  Job job =
      JobOf({Make("Conv2d", {1, 4, 3}), Make("Flatten"), Make("Linear", {144, 32}), Make("ReLU"),
             MakeLayer("Sequential", {}, {}, {Make("Linear", {32, 32}), Make("Tanh")}, "n:1"),
             Make("Linear", {32, 10})},
            {1, 8, 8}, 4, 8);
  job.partition = {.method = "cuts", .bounds = {0, 2, 6}, .function = {}};
  job.parallel.pipe = 2;
  const Plan plan = MakePlan(job, {}, nullptr);
  EXPECT_THAT(JoinedLayers(plan), ElementsAre(2, 4, 5)) << "no convolution";
  EXPECT_THAT(plan.joined(), ElementsAre(1, 4));
  EXPECT_THAT(plan.notices, IsEmpty());
  EXPECT_THAT(PlanText(plan),
              HasSubstr("joined weight gradients of stage 1, up to 4 micro-batches at a time: "
                        "2 Linear, 4 Sequential, 5 Linear\n"));
  EXPECT_EQ(PlanValue(plan)["stages"].as_list()[1]["joined"], Value(4));
  EXPECT_EQ(PlanValue(plan)["layers"].as_list()[2]["join"], Value(true));
  EXPECT_EQ(PlanText(Unjoined(plan)).find("joined"), std::string::npos);
  job.join = false;
  EXPECT_EQ(PlanText(MakePlan(job, {}, nullptr)), PlanText(Unjoined(plan)));
}

TEST(PlanJoining, StopsAtRowsThatAreEnough) {
  const auto joined = [](int64_t micro_batches, int64_t rows) {
    return MakePlan(JobOf({Make("Linear", {4, 4})}, {4}, micro_batches, rows), {}, nullptr)
        .stages[0]
        .joined;
  };
  EXPECT_EQ(joined(100, 8), 25) << "four groups of at most 32 micro-batches, and even";
  EXPECT_EQ(joined(100, 100), 2);
  EXPECT_EQ(joined(100, 128), 1);
  EXPECT_EQ(joined(3, 1), 3);
}

// Products of 41 to some 130 rows of a large matrix are slow: groups stay below or go far beyond.
TEST(PlanJoining, KnowsHowMklMultipliesLargeMatrices) {
  const auto joined = [](int64_t micro_batches, int64_t rows) {
    return MakePlan(JobOf({Make("Linear", {4096, 4096})}, {4096}, micro_batches, rows), {}, nullptr)
        .stages[0]
        .joined;
  };
  EXPECT_EQ(joined(4, 8), 4) << "32 rows";
  EXPECT_EQ(joined(6, 8), 3) << "24 and 24 rows, not 48";
  EXPECT_EQ(joined(8, 8), 4);
  EXPECT_EQ(joined(32, 8), 32) << "256 rows";
  EXPECT_EQ(joined(2, 32), 1) << "32 and 32 rows, not 64";
  EXPECT_EQ(joined(4, 32), 4);
  EXPECT_EQ(joined(4, 64), 4);
  EXPECT_EQ(joined(4, 129), 1);
}

TEST(PlanJoining, CountsTheRowsOfTokens) {
  Job job = JobOf({Make("Linear", {8, 8})}, {32, 8}, 4, 2);
  EXPECT_EQ(MakePlan(job, {}, nullptr).stages[0].joined, 4) << "64 rows each";
  job.batch.micro_batch_size = 5;
  const Plan plan = MakePlan(job, {}, nullptr);
  EXPECT_EQ(plan.stages[0].joined, 1);
  EXPECT_THAT(plan.notices, ElementsAre(HasSubstr("join = true changes nothing: no layer")));
}

TEST(PlanJoining, SaysWhenNothingGains) {
  Job job = JobOf({Make("Linear", {8, 8})}, {8}, 1, 4);
  EXPECT_THAT(MakePlan(job, {}, nullptr).notices, ElementsAre(HasSubstr("one micro-batch")));
  job.batch.micro_batches = 4;
  job.layers[0].frozen = true;
  EXPECT_THAT(MakePlan(job, {}, nullptr).notices,
              ElementsAre(HasSubstr("nothing learns"), HasSubstr("no layer that learns")));
}

TEST(PlanJoining, NeedsShapes) {
  Job job = JobOf({Make("Linear", {8, 8})}, {8}, 4, 4);
  job.input.reset();
  EXPECT_THAT(ConfigErrorOf([&] { MakePlan(job, {}, nullptr); }),
              HasSubstr("join = true needs the input's shape"));
}

TEST(LimitJoining, ChoosesTheBestOfWhatIsLeft) {
  const Job job = JobOf({Make("Linear", {4096, 4096})}, {4096}, 32, 8);
  Plan plan = MakePlan(job, {}, nullptr);
  const ModelCosts costs = CostsOf(job, plan, nullptr);
  LimitJoining(costs, 0, 8, plan);
  EXPECT_THAT(plan.joined(), ElementsAre(5)) << "7 groups of up to 40 rows";
  EXPECT_THAT(JoinedLayers(plan), ElementsAre(0));
  LimitJoining(costs, 0, 1, plan);
  EXPECT_THAT(plan.joined(), ElementsAre(1));
  EXPECT_THAT(JoinedLayers(plan), IsEmpty());
}

TEST(JoinedShare, IsWhatWasMeasured) {
  LayerCost layer;
  layer.product_rows = 8;
  layer.gradient_bytes = 4 * 9216 * 4096;
  EXPECT_EQ(JoinedShare(layer, 4, 1), 1);
  EXPECT_NEAR(JoinedShare(layer, 4, 4), 24.1 / (4 * 16.8), 0.05);
  EXPECT_NEAR(JoinedShare(layer, 32, 32), 139.1 / (32 * 16.8), 0.05);
  EXPECT_NEAR(JoinedShare(layer, 8, 8), 68.7 / (8 * 16.8), 0.05);
  EXPECT_NEAR(JoinedShare(layer, 6, 4), 2 * 20.9 / (6 * 16.8), 0.05) << "two groups of three";
  layer.gradient_bytes = 4 * 512 * 2048;
  EXPECT_NEAR(JoinedShare(layer, 4, 4), 0.573 / (4 * 0.331), 0.1);
}

TEST(StageCosts, KnowWhatIsJoined) {
  Job job = JobOf({Make("Linear", {64, 128}), Make("Linear", {128, 64})}, {64}, 4, 8);
  const Plan plan = MakePlan(job, {}, nullptr);
  ModelCosts costs = CostsOf(job, plan, nullptr);
  for (LayerCost& layer : costs.layers) layer.weight_grad.seconds = 1;
  const StageCost joined = StageCosts(costs, plan)[0];
  const StageCost alone = StageCosts(costs, Unjoined(plan))[0];
  EXPECT_EQ(alone.weight_grad.seconds, 2);
  EXPECT_DOUBLE_EQ(joined.weight_grad.seconds, 2 * JoinedShare(costs.layers[0], 4, 4));
  EXPECT_EQ(alone.joined_bytes, 0);
  EXPECT_EQ(joined.joined_scratch, costs.layers[0].product_bytes);
  EXPECT_GE(costs.layers[0].product_bytes, 4 * 8 * (64 + 128));
  EXPECT_EQ(joined.joined_bytes, 2 * joined.joined_scratch);
}

}  // namespace
}  // namespace strata
