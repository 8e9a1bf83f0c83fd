// Tests decisions about given numbers; nothing runs, and no clock is read.
#include "engine/search/rebalance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/forecast/planned_program.h"
#include "engine/plan/plan_costs.h"
#include "engine/plan/plan_testing.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kLeft = 1000;

/// 16 layers on two ranks; each layer is predicted to take 3 ms per micro-batch. They are larger
/// than those of other tests, so that moving pays.
class RebalancerTest : public ::testing::Test {
 protected:
  RebalancerTest() {
    ::unsetenv("STRATA_RATES");
    job_ = DeepJob(2, 8);
    job_.partition.method = "auto";
    job_.schedule.name = "1f1b";
    plan_ = Planned();
  }

  Plan Planned() const {
    const Measure measure = [](const MeasureTask&) {
      Profile profile;
      profile.layers.assign(16, {1e-3, 1e-3, 1e-3});
      return profile;
    };
    return PlanJob(job_, {.measure = measure}, nullptr);
  }

  /// The seconds of the stages if each layer takes `seconds`, on ranks with this slowness.
  std::vector<StageSeconds> Stages(const std::vector<double>& seconds,
                                   const std::vector<double>& slowness) const {
    std::vector<StageSeconds> stages;
    for (const StagePlan& stage : plan_.stages) {
      StageSeconds& sum = stages.emplace_back();
      for (int i = stage.begin; i < stage.end; ++i) {
        sum.forward += seconds[i] * slowness[stage.rank] / 3;
        sum.backward += seconds[i] * slowness[stage.rank] * 2 / 3;
      }
    }
    return stages;
  }

  /// Feeds steps with such stages until cuts are proposed or `steps` steps have passed.
  std::optional<BetterCuts> Run(Rebalancer& rebalancer, int steps,
                                const std::vector<double>& layers,
                                const std::vector<double>& slowness, int64_t left = kLeft) {
    for (int step = 0; step < steps; ++step) {
      ++steps_;
      auto better = rebalancer.AfterStep({Stages(layers, slowness), 0.5}, left);
      if (better) return better;
    }
    return std::nullopt;
  }

  void MoveTo(const BetterCuts& better, Rebalancer& rebalancer) {
    plan_ = RecutPlan(job_, plan_, better.cuts, better.costs, nullptr);
    rebalancer.Moved(0.5);
  }

  static std::vector<double> Even() { return std::vector<double>(16, 3e-3); }

  Job job_;
  Plan plan_;
  int steps_ = 0;
};

TEST_F(RebalancerTest, LeavesABalancedTrainingAlone) {
  ProvedPrograms programs;
  ASSERT_EQ(Rebalancer::WhyNot(job_, plan_, programs, nullptr), "");
  ASSERT_THAT(plan_.bounds, ElementsAre(0, 8, 16));
  Rebalancer rebalancer(job_, plan_, nullptr);
  EXPECT_FALSE(Run(rebalancer, 100, Even(), {1, 1}));
  EXPECT_FALSE(Run(rebalancer, 100, Even(), {2, 2})) << "all ranks alike";
}

TEST_F(RebalancerTest, PutsGuessesAboutLayersRight) {
  std::vector<double> layers = Even();
  for (int i = 8; i < 16; ++i) layers[i] *= 2;
  Rebalancer rebalancer(job_, plan_, nullptr);
  const auto better = Run(rebalancer, 100, layers, {1, 1});
  ASSERT_TRUE(better);
  EXPECT_EQ(steps_, Rebalancer::kUnsettled + 2 * Rebalancer::kWindow);
  EXPECT_THAT(better->cuts, ElementsAre(0, 10, 16));
  EXPECT_GT(better->saving, 0.15);
  EXPECT_EQ(better->why, "rank 1 was measured to be busy 2 times as long as rank 0");
  MoveTo(*better, rebalancer);
  EXPECT_FALSE(Run(rebalancer, 100, layers, {1, 1}));
}

TEST_F(RebalancerTest, GivesASlowRankLessUntilItIsFastAgain) {
  Rebalancer rebalancer(job_, plan_, nullptr);
  EXPECT_FALSE(Run(rebalancer, 53, Even(), {1, 1}));
  EXPECT_FALSE(Run(rebalancer, 10, Even(), {1, 1.5})) << "one window alone";
  EXPECT_FALSE(Run(rebalancer, 10, Even(), {1, 1}));
  EXPECT_FALSE(Run(rebalancer, 19, Even(), {1, 1.5}));
  const auto slow = Run(rebalancer, 1, Even(), {1, 1.5});
  ASSERT_TRUE(slow);
  EXPECT_THAT(slow->cuts, ElementsAre(0, 10, 16));  // 10 layers against 9 before
  EXPECT_EQ(slow->why, "rank 1 takes 1.5 times as long as at first");
  MoveTo(*slow, rebalancer);
  EXPECT_FALSE(Run(rebalancer, 100, Even(), {1, 1.5}));
  const auto fast = Run(rebalancer, 100, Even(), {1, 1});
  ASSERT_TRUE(fast);
  EXPECT_THAT(fast->cuts, ElementsAre(0, 8, 16));
}

/// Where the job gives the speeds, steps that take as long as these speeds say move nothing, and a
/// rank counts as slow only against its own speed.
TEST_F(RebalancerTest, BeginsWithTheSpeedsOfTheJob) {
  job_.ranks.rules = {{.who = "1", .speed = 1.0 / 3}};
  plan_ = Planned();
  ASSERT_THAT(plan_.bounds, ElementsAre(0, 12, 16));
  Rebalancer rebalancer(job_, plan_, nullptr);
  EXPECT_FALSE(Run(rebalancer, 100, Even(), {1, 3}));
  const auto fast = Run(rebalancer, 100, Even(), {1, 1});
  ASSERT_TRUE(fast);
  EXPECT_EQ(fast->why, "rank 1 takes 3 times less than at first");
  EXPECT_THAT(fast->cuts, ElementsAre(0, 8, 16));
  MoveTo(*fast, rebalancer);
  EXPECT_FALSE(Run(rebalancer, 100, Even(), {1, 1}));
  const StepEvaluation step =
      Evaluate(PlacedHere(job_, plan_, *plan_.costs), TrainingProgram(job_, plan_, 8, nullptr));
  EXPECT_NEAR(step.ranks[0].busy, step.ranks[1].busy, 0.05 * step.step);
}

TEST_F(RebalancerTest, WrongGuessesDoNotMoveLayersToAndFro) {
  std::vector<double> layers(16, 1e-3);
  layers[14] = 20e-3;  // the first window treats all layers of a stage alike
  layers[2] = 12e-3;
  Rebalancer rebalancer(job_, plan_, nullptr);
  int moves = 0;
  while (const auto better = Run(rebalancer, 100, layers, {1, 1})) {
    MoveTo(*better, rebalancer);
    ASSERT_LE(++moves, 4);
  }
  EXPECT_GE(moves, 1);
  EXPECT_GT(plan_.bounds[1], 8);
}

TEST_F(RebalancerTest, WhatIsRecomputedIsNotDueToLayersThatCame) {
  job_.recompute = {.method = RecomputeSpec::Method::kEvery, .every = 2};
  plan_ = RecutPlan(job_, plan_, plan_.bounds, nullptr, nullptr);
  ModelCosts truth = *plan_.costs;
  for (int i = 8; i < 16; ++i) {
    LayerCost& layer = truth.layers[i];
    for (Work* pass : {&layer.forward, &layer.input_grad, &layer.weight_grad}) pass->seconds *= 2;
  }
  Rebalancer rebalancer(job_, plan_, nullptr);
  const auto run = [&](double slowness) -> std::optional<BetterCuts> {
    std::vector<StageSeconds> stages;
    for (const StageCost& cost : StageCosts(truth, plan_)) {
      EXPECT_GT(cost.recompute.seconds, 0);
      const double by = stages.empty() ? slowness : 1;
      stages.push_back(
          {by * (cost.forward.seconds + cost.recompute.seconds), by * cost.backward_seconds()});
    }
    for (int step = 0; step < 100; ++step) {
      if (auto better = rebalancer.AfterStep({stages, 0.5}, kLeft)) return better;
    }
    return std::nullopt;
  };
  const auto better = run(1);
  ASSERT_TRUE(better);
  ASSERT_GT(better->cuts[1], 8);
  MoveTo(*better, rebalancer);
  EXPECT_FALSE(run(1));
  const auto slow = run(2);
  ASSERT_TRUE(slow);
  for (const int i : {14, 15}) {  // on the rank whose speed has not changed
    EXPECT_NEAR(slow->costs->layers[i].forward.seconds, truth.layers[i].forward.seconds, 1e-9) << i;
  }
}

TEST_F(RebalancerTest, SearchesTakeTimeAsMovesDo) {
  Rebalancer rebalancer(job_, plan_, nullptr);
  rebalancer.AddSearchTime(1e3);
  EXPECT_FALSE(Run(rebalancer, 100, Even(), {1, 3}));
}

TEST_F(RebalancerTest, AStepThatIsSlowAloneDoesNotCount) {
  Rebalancer rebalancer(job_, plan_, nullptr);
  EXPECT_FALSE(Run(rebalancer, 3, Even(), {1, 1}));
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(Run(rebalancer, 7, Even(), {1, 1}));
    EXPECT_FALSE(Run(rebalancer, 3, Even(), {1, 9}));
  }
}

TEST_F(RebalancerTest, MovesOnlyWhereTheRestOfTheTrainingPaysForIt) {
  Rebalancer rebalancer(job_, plan_, nullptr);
  EXPECT_FALSE(Run(rebalancer, 100, Even(), {1, 3}, /*left=*/0));
  Rebalancer at_the_end(job_, plan_, nullptr);
  EXPECT_FALSE(Run(at_the_end, 33, Even(), {1, 1.5}, /*left=*/1));
  Rebalancer in_time(job_, plan_, nullptr);
  EXPECT_TRUE(Run(in_time, 33, Even(), {1, 1.5}, /*left=*/100));
  // Moves may take a twentieth of the training, that is 2.5 s of some hundred steps.
  Rebalancer often(job_, plan_, nullptr);
  for (int i = 0; i < 5; ++i) often.Moved(0.5);
  EXPECT_FALSE(Run(often, 33, Even(), {1, 1.5}, /*left=*/77));
  Rebalancer seldom(job_, plan_, nullptr);
  for (int i = 0; i < 3; ++i) seldom.Moved(0.5);
  EXPECT_TRUE(Run(seldom, 33, Even(), {1, 1.5}, /*left=*/77));
}

TEST_F(RebalancerTest, TellsTheOthersEveryBit) {
  std::vector<double> layers = Even();
  layers[3] *= 7;
  Rebalancer rebalancer(job_, plan_, nullptr);
  const auto better = Run(rebalancer, 100, layers, {1, 1});
  ASSERT_TRUE(better);
  const BetterCuts parsed = ParseBetterCuts(ToText(*better), *plan_.costs);
  EXPECT_EQ(parsed.cuts, better->cuts);
  EXPECT_EQ(parsed.why, better->why);
  EXPECT_EQ(parsed.saving, better->saving);
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerCost &mine = better->costs->layers[i], &theirs = parsed.costs->layers[i];
    EXPECT_EQ(theirs.forward.seconds, mine.forward.seconds);
    EXPECT_EQ(theirs.input_grad.seconds, mine.input_grad.seconds);
    EXPECT_EQ(theirs.weight_grad.seconds, mine.weight_grad.seconds);
    EXPECT_EQ(theirs.parameters, mine.parameters);
  }
}

TEST_F(RebalancerTest, StaysOffWhereItWouldNotDo) {
  const auto why_not = [&](const std::function<void(Job&, Plan&)>& change) {
    Job job = job_;
    Plan plan = plan_;
    change(job, plan);
    ProvedPrograms programs;
    return Rebalancer::WhyNot(job, plan, programs, nullptr);
  };
  EXPECT_EQ(why_not([](Job& job, Plan&) { job.rebalance = false; }), "rebalance = false");
  EXPECT_THAT(why_not([](Job& job, Plan&) { job.partition.method = "uniform"; }),
              HasSubstr("partition says"));
  EXPECT_THAT(why_not([](Job&, Plan& plan) { plan.memory = 1 << 30; }), HasSubstr("more memory"));
  EXPECT_THAT(why_not([](Job& job, Plan&) { job.layers[3].scripted = true; }),
              HasSubstr("strata.layer"));
  EXPECT_EQ(why_not([](Job& job, Plan&) {
              job.layers[3].scripted = true;
              job.layers[3].type = "function";
            }),
            "");
  EXPECT_THAT(why_not([](Job&, Plan& plan) { plan.device = "cuda"; }), HasSubstr("GPU"));
  EXPECT_THAT(why_not([](Job&, Plan& plan) { plan.costs = nullptr; }), HasSubstr("not known"));
  EXPECT_THAT(why_not([](Job&, Plan& plan) {
                ModelCosts costs = *plan.costs;
                costs.seconds_from = SecondsFrom::kStated;
                plan.costs = std::make_shared<const ModelCosts>(costs);
              }),
              HasSubstr("not known"));
}

}  // namespace
}  // namespace strata
