#include "engine/forecast/run_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "engine/forecast/planned_program.h"
#include "engine/forecast/step_costs.h"
#include "engine/layers/head_chunks.h"
#include "engine/plan/plan_costs.h"
#include "engine/plan/plan_testing.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/simulator.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

/// 16 layers on two ranks; each layer is predicted to take 3 ms per micro-batch.
class RunProfileTest : public ::testing::Test {
 protected:
  RunProfileTest() {
    ::unsetenv("STRATA_RATES");
    job_ = DeepJob(2, 8);
    job_.layers[15] = MakeLayer("ReLU", {}, {}, {}, "");  // only on the second stage
    job_.partition.method = "cuts";
    job_.partition.bounds = {0, 8, 16};
    job_.schedule.name = "1f1b";
    plan_ = Planned();
  }

  Plan Planned() const {
    const Measure measure = [](const MeasureTask&) {
      Profile profile;
      profile.layers.assign(16, {1e-3, 1e-3, 1e-3});
      profile.update = 1e-9;
      profile.norm = 2e-9;
      return profile;
    };
    return PlanJob(job_, {.measure = measure, .wants_seconds = true}, nullptr);
  }

  /// A measured step with these seconds of the stages.
  static MeasuredStep Step(std::vector<StageSeconds> stages) {
    return {.stages = std::move(stages), .seconds = 1};
  }

  /// The seconds of the stages that a profile predicts.
  std::vector<StageSeconds> By(const Profile& profile) const {
    ModelCosts costs = *plan_.costs;
    SetSeconds(costs, profile, costs, "cpu");
    return ExpectedStages(costs, plan_);
  }

  schedule::Program Lowered() const {
    return LowerAndCheck(TrainingProgram(job_, plan_, 8, nullptr));
  }
  Profile OfRun(const MeasuredStep& step) const {
    return ProfileOfRun(job_, plan_, step, Lowered());
  }

  /// The predicted seconds of the next step of the same plan.
  double SecondsBy(const Profile& profile) const {
    ModelCosts costs = *plan_.costs;
    SetSeconds(costs, profile, costs, "cpu");
    return Simulate(Lowered(), StepCosts(job_, plan_, costs, LinksOfStages(plan_))).makespan;
  }

  Job job_;
  Plan plan_;
};

TEST_F(RunProfileTest, StagesTakeWhatTheyWereMeasuredToTake) {
  for (const bool in_chunks : {false, true}) {
    const WithRowsOfChunk rows(in_chunks ? 1 : 1000);
    if (in_chunks) {  // the forward of the last stage does the work of its head's backward
      job_.layers[15] = job_.layers[14];
      plan_ = Planned();
    }
    ASSERT_EQ(plan_.costs->chunk_rows > 0, in_chunks);
    const MeasuredStep step = Step({{9e-3, 16e-3}, {12e-3, 30e-3}});
    const Profile profile = OfRun(step);
    EXPECT_EQ(profile.seconds_from, SecondsFrom::kMeasured);
    const std::vector<StageSeconds> stages = By(profile);
    for (size_t s = 0; s < 2; ++s) {
      EXPECT_NEAR(stages[s].forward / step.stages[s].forward, 1, 1e-9) << s;
      EXPECT_NEAR(stages[s].backward / step.stages[s].backward, 1, 1e-9) << s;
    }
  }
}

TEST_F(RunProfileTest, WhatAStageTakesMoreIsRatherDueToTheLayersThatItAloneHas) {
  // Seven layers of the second stage are of the same kind as those of the first.
  const Profile profile = OfRun(Step({{16e-3, 15e-3}, {24e-3, 16e-3}}));
  for (const int i : {2, 3, 8, 13}) EXPECT_NEAR(profile.layers[i].forward, 2.4e-3, 0.6e-3) << i;
  EXPECT_GT(profile.layers[15].forward, 4e-3);
}

TEST_F(RunProfileTest, WhatNoLayerExplainsIsSharedByAll) {
  job_.layers[15] = job_.layers[13];
  const Profile profile = OfRun(Step({{8e-3, 15e-3}, {12e-3, 16e-3}}));
  const double by = profile.layers[12].forward / profile.layers[2].forward;
  EXPECT_GT(by, 1.2);
  for (const int i : {4, 5}) {
    EXPECT_NEAR(profile.layers[i + 8].forward / profile.layers[i].forward, by, 1e-9) << i;
  }
}

TEST_F(RunProfileTest, OptimizersCountByTheElementsOfAllRanks) {
  MeasuredStep step = Step({{8e-3, 15e-3}, {8e-3, 16e-3}});
  Profile profile = OfRun(step);
  EXPECT_EQ(profile.update, 1e-9) << "what was not measured is as it was known";
  EXPECT_EQ(profile.norm, 2e-9);
  step.update = 3;
  const auto elements = static_cast<double>(plan_.parameters);
  EXPECT_DOUBLE_EQ(OfRun(step).update, 3 / elements);
}

TEST_F(RunProfileTest, ActionsShareWhatAStepTakesBeyondItsLayers) {
  MeasuredStep step = Step({{8e-3, 16e-3}, {8e-3, 16e-3}});
  Profile profile = OfRun(step);
  profile.action = 0;
  const double layers = SecondsBy(profile);
  for (const double beyond : {1e-3, 5e-3}) {
    step.seconds = layers + beyond;
    EXPECT_GT(OfRun(step).action, 0) << beyond;
    EXPECT_NEAR(SecondsBy(OfRun(step)), step.seconds, 1.1e-3 * step.seconds) << beyond;
  }
  MeasuredStep endless = Step({{1e12, 1e12}, {1e12, 1e12}});
  endless.seconds = 1e15;
  EXPECT_EQ(OfRun(endless).action, 0) << "microseconds are lost beside so many seconds";
  step.seconds = 0.9 * layers;
  EXPECT_EQ(OfRun(step).action, 0) << "the layers' seconds are what stages took";
  step.seconds = 10 * layers;
  EXPECT_LT(SecondsBy(OfRun(step)), 1.6 * layers) << "it waited for something else";
}

TEST_F(RunProfileTest, SomeTrainingsTellNothing) {
  EXPECT_TRUE(TellsOfLayers(job_, plan_));
  Job still = job_;
  still.rebalance = false;
  EXPECT_FALSE(TellsOfLayers(still, plan_));
  Plan plan = plan_;
  plan.device = "cuda";
  EXPECT_FALSE(TellsOfLayers(job_, plan));
  plan = plan_;
  ModelCosts stated = *plan_.costs;
  stated.seconds_from = SecondsFrom::kStated;
  plan.costs = std::make_shared<const ModelCosts>(stated);
  EXPECT_FALSE(TellsOfLayers(job_, plan));
  plan.costs = nullptr;
  EXPECT_FALSE(TellsOfLayers(job_, plan));
}

TEST(StepWindowTest, GivesMediansOfSettledSteps) {
  StepWindow window;
  const auto step = [](double seconds, double share) {
    return MeasuredStep{
        .stages = {{seconds, 2 * seconds}}, .seconds = seconds, .processor_share = share};
  };
  for (int i = 0; i < StepWindow::kUnsettled; ++i) EXPECT_FALSE(window.Add(step(100, 0.1)));
  for (int i = 1; i < StepWindow::kSteps; ++i) EXPECT_FALSE(window.Add(step(i == 5 ? 50 : 1, 1)));
  const auto medians = window.Add(step(1, 0.5));
  ASSERT_TRUE(medians);
  EXPECT_EQ(medians->seconds, 1);
  EXPECT_EQ(medians->stages[0].backward, 2);
  EXPECT_FALSE(medians->is_disturbed()) << "one step alone";
  for (int i = 1; i < StepWindow::kSteps; ++i) EXPECT_FALSE(window.Add(step(1, 0.8)));
  EXPECT_TRUE(window.Add(step(1, 0.8))->is_disturbed());
  window.Restart();
  for (int i = 0; i < StepWindow::kUnsettled; ++i) EXPECT_FALSE(window.Add(step(1, 1)));
}

}  // namespace
}  // namespace strata
