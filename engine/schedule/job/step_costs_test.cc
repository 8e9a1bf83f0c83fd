#include "engine/schedule/job/step_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/schedule/job/planned_program.h"
#include "engine/schedule/lower/lowering.h"
#include "engine/spec/layers/layers.h"

namespace strata {
namespace {

LayerSpec Linear(int in, int out) { return MakeLayer("Linear", {in, out}, {}, {}, ""); }

Job TwoStages() {
  Job job;
  job.layers = {Linear(64, 32), Linear(32, 32), Linear(32, 10)};
  job.input = TensorSpec{{64}};
  job.loss = MakeLayer("CrossEntropyLoss", {}, {}, {}, "");
  job.batch = {.micro_batches = 4, .micro_batch_size = 8};
  job.partition.method = "cuts";
  job.partition.bounds = {0, 1, 3};
  job.parallel.pipe = 2;
  job.device = "cpu";
  job.optimizer.options.Set("momentum", 0);
  return job;
}

/// Forward of layer i takes 1 + i, the input gradient 10 times that, the weight gradient 100.
ModelCosts Seconds(const Job& job, const Plan& plan) {
  ModelCosts costs = CostsOf(job, plan, nullptr);
  for (size_t i = 0; i < costs.layers.size(); ++i) {
    const double unit = 1.0 + static_cast<double>(i);
    costs.layers[i].forward.seconds = unit;
    costs.layers[i].input_grad.seconds = 10 * unit;
    costs.layers[i].weight_grad.seconds = 100 * unit;
  }
  costs.loss.forward.seconds = 0.25;
  costs.loss.input_grad.seconds = 0.5;
  costs.update_seconds = 1e-3;
  return costs;
}

TEST(StepCostsTest, AStageIsTheSumOfItsLayersAndTheLastHasTheLoss) {
  const Job job = TwoStages();
  const Plan plan = PlanJob(job, {}, nullptr);
  const schedule::Costs costs = StepCosts(job, plan, Seconds(job, plan));
  EXPECT_THAT(costs.forward, testing::ElementsAre(1, 2 + 3 + 0.25));
  EXPECT_THAT(costs.input_grad, testing::ElementsAre(0, 20 + 30 + 0.5));  // of data: none
  EXPECT_THAT(costs.weight_grad, testing::ElementsAre(100, 500));
  EXPECT_THAT(costs.begin, testing::ElementsAre(testing::DoubleEq((64 * 32 + 32) * 1e-3),
                                                testing::DoubleEq((32 * 32 + 32 + 330) * 1e-3)))
      << "all ranks wait for each other before the update";
  EXPECT_THAT(costs.step, testing::ElementsAre(0));
  EXPECT_THAT(costs.reduce, testing::ElementsAre(0, 0));
  EXPECT_THAT(costs.transfer, testing::ElementsAre(0, 0));
}

TEST(StepCostsTest, MessagesAndReductionsTakeWhatTheLinksSay) {
  Job job = TwoStages();
  job.parallel.data = 2;
  const Plan plan = PlanJob(job, {}, nullptr);
  const StageLinks link = {.next = {.latency = 1, .bandwidth = 1024},
                           .data = {.latency = 5, .bandwidth = 0}};
  const schedule::Costs costs = StepCosts(job, plan, Seconds(job, plan), {link, link});
  EXPECT_THAT(costs.transfer, testing::ElementsAre(8 * 32 * 4 / 1024.0, 0));
  EXPECT_THAT(costs.latency, testing::ElementsAre(1, 0));
  EXPECT_THAT(costs.reduce, testing::ElementsAre(10, 10));
}

TEST(StepCostsTest, WhatIsRecomputedTakesAForward) {
  Job job = TwoStages();
  job.recompute.method = RecomputeSpec::Method::kLayers;
  job.recompute.layers.items = {2};
  const Plan plan = PlanJob(job, {}, nullptr);
  const schedule::Costs costs = StepCosts(job, plan, Seconds(job, plan));
  EXPECT_THAT(costs.recompute, testing::ElementsAre(0, 3));
}

TEST(StepCostsTest, TheSimulatorTakesThem) {
  const Job job = TwoStages();
  const Plan plan = PlanJob(job, {}, nullptr);
  const schedule::Costs costs = StepCosts(job, plan, Seconds(job, plan));
  const schedule::Program program = schedule::LowerAndCheck(TrainingProgram(job, plan, 4, nullptr));
  EXPECT_GT(schedule::Simulate(program, costs).makespan, 4 * (5.25 + 50.5 + 500));
}

}  // namespace
}  // namespace strata
