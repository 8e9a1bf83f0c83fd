#include "engine/forecast/step_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/forecast/planned_program.h"
#include "engine/layers/layer_types.h"
#include "engine/schedule/lowering.h"
#include "engine/search/plan_job.h"

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

/// The forward of layer i takes 1 + i seconds, the input gradient 10 times as long, the weight
/// gradient 100 times.
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
  // The first stage has no gradient of its input.
  EXPECT_THAT(costs.input_grad, testing::ElementsAre(0, 20 + 30 + 0.5));
  EXPECT_THAT(costs.weight_grad, testing::ElementsAre(100, 500));
  EXPECT_THAT(costs.begin, testing::ElementsAre(testing::DoubleEq((64 * 32 + 32) * 1e-3),
                                                testing::DoubleEq((32 * 32 + 32 + 330) * 1e-3)))
      << "all ranks wait for each other before the update";
  EXPECT_THAT(costs.step, testing::ElementsAre(0));
  EXPECT_THAT(costs.reduce, testing::ElementsAre(0, 0));
  EXPECT_THAT(costs.transfer, testing::ElementsAre(0, 0));
}

TEST(StepCostsTest, WhereTheMachineWasMeasuredTheEngineTakesTimeToo) {
  const Job job = TwoStages();
  Plan plan = PlanJob(job, {}, nullptr);
  ModelCosts costs = Seconds(job, plan);
  costs.seconds_from = SecondsFrom::kStated;
  EXPECT_EQ(StepCosts(job, plan, costs).action, 0);
  costs.seconds_from = SecondsFrom::kMeasured;
  EXPECT_EQ(StepCosts(job, plan, costs).action, kActionSeconds);
  plan.device = "cuda";
  EXPECT_EQ(StepCosts(job, plan, costs).action, 0);
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
  // Two messages, and 3.5 times the bytes at the pace of an update, which touches 12 bytes per
  // element.
  const double pace = 3.5 * 1e-3 / 12;
  EXPECT_THAT(costs.reduce, testing::ElementsAre(testing::DoubleNear(10 + 8320 * pace, 1e-9),
                                                 testing::DoubleNear(10 + 5568 * pace, 1e-9)));
}

/// Equal links between all pairs of `ranks` ranks.
std::vector<LinkRates> Alike(size_t ranks, LinkRates link) {
  return std::vector<LinkRates>(ranks * (ranks - 1) / 2, link);
}

TEST(LinksOfStages, OfAUniformTableAreThoseOfOneLink) {
  Job job = TwoStages();
  job.parallel.data = 2;
  const LinkRates link = {.latency = 3e-5, .bandwidth = 7e8};
  const Plan measured = PlanJob(job,
                                {.links = std::make_shared<const LinkTable>(
                                     "gloo", std::vector<std::string>(4, "a"), Alike(4, link))},
                                nullptr);
  Plan stated = PlanJob(job, {}, nullptr);
  ModelCosts costs = Seconds(job, stated);
  costs.link = link;
  stated.costs = std::make_shared<const ModelCosts>(costs);
  const schedule::Costs one = StepCosts(job, stated, costs, LinksOfStages(stated));
  const schedule::Costs each = StepCosts(job, measured, costs, LinksOfStages(measured));
  EXPECT_EQ(one.transfer, each.transfer);
  EXPECT_EQ(one.latency, each.latency);
  EXPECT_EQ(one.reduce, each.reduce);
  EXPECT_GT(one.reduce[0], 0);
}

TEST(LinksOfStages, TheSlowestReplicaCounts) {
  // Ranks 0 and 1 are stage 0, ranks 2 and 3 stage 1; rank 0 sends to 2 and rank 1 to 3.
  Job job = TwoStages();
  job.parallel.data = 2;
  std::vector<LinkRates> pairs = Alike(4, {1e-5, 1e9});
  const auto links_with = [&](size_t pair, LinkRates link) {
    std::vector<LinkRates> changed = pairs;
    changed[pair] = link;
    const Plan plan = PlanJob(job,
                              {.links = std::make_shared<const LinkTable>(
                                   "gloo", std::vector<std::string>(4, "a"), changed)},
                              nullptr);
    return LinksOfStages(plan);
  };
  const LinkRates slow = {1e-3, 1e6};
  constexpr size_t k01 = 0, k02 = 1, k03 = 2, k13 = 4;
  EXPECT_EQ(links_with(k02, slow)[0].next, slow);
  EXPECT_EQ(links_with(k13, slow)[0].next, slow);
  EXPECT_EQ(links_with(k01, slow)[0].data, slow);
  EXPECT_EQ(links_with(k01, slow)[1].data, pairs[0]);
  EXPECT_EQ(links_with(k03, slow)[0].next, pairs[0]) << "they send each other nothing";
  EXPECT_FALSE(links_with(k13, slow)[1].next.takes_time()) << "nothing is behind the last stage";
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
