// CutEvaluator gives what planning anew gives, and Climb() what its rules allow.
#include "engine/search/cut_evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "engine/forecast/planned_program.h"
#include "engine/plan/plan_testing.h"
#include "engine/search/climb.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

using testing::ElementsAre;

StepEvaluation PlannedAnew(const Job& job, const Plan& plan, const std::vector<int>& bounds) {
  const Plan cut = RecutPlan(job, plan, bounds, nullptr, nullptr);
  return Evaluate(PlacedHere(job, cut, *cut.costs), TrainingProgram(job, cut, 4, nullptr));
}

TEST(CutEvaluator, GivesWhatPlanningAnewGives) {
  ::unsetenv("STRATA_RATES");
  const Measure measure = [](const MeasureTask&) {
    Profile profile;
    for (int i = 0; i < 16; ++i) {
      const double seconds = 1e-3 * (1 + i % 3);
      profile.layers.push_back({seconds, 2 * seconds, 3 * seconds});
    }
    profile.update = profile.norm = profile.clear = 1e-9;
    return profile;
  };
  using Method = RecomputeSpec::Method;
  for (const Method method : {Method::kNone, Method::kStages, Method::kEvery, Method::kLayers}) {
    Job job = DeepJob(2, 4);
    for (const int tied : {3, 12}) {
      job.layers[tied].tied_key = "shared";
      job.layers[tied].tied_weights = {"weight"};
    }
    job.recompute.method = method;
    job.recompute.every = 2;
    if (method == Method::kLayers) job.recompute.layers.items = {2, 9};
    job.stages_per_rank = 2;
    job.schedule.name = "interleaved_1f1b";
    job.zero = 1;
    job.parallel.data = 2;
    job.ranks.rules = {{.who = "1", .speed = 0.5}};  // rank 0 of the pipe axis, its second replica
    const Plan plan = PlanJob(job, {.measure = measure, .wants_rates = true}, nullptr);
    CutEvaluator evaluator(job, plan, nullptr);
    const std::vector<std::vector<int>> all = {
        {0, 4, 8, 12, 16}, {0, 1, 2, 13, 16}, {0, 3, 4, 5, 16}, {0, 4, 8, 12, 16}};
    for (const std::vector<int>& bounds : all) {
      const StepEvaluation fast = evaluator.Of(bounds, plan.stage_ranks(), plan.schedule);
      const StepEvaluation anew = PlannedAnew(job, plan, bounds);
      EXPECT_DOUBLE_EQ(fast.step, anew.step) << static_cast<int>(method);
      EXPECT_EQ(fast.memory, anew.memory) << static_cast<int>(method);
    }
  }
}

TEST(CutEvaluator, ASlowRankTakesLongerWithItsLayers) {
  Job job = DeepJob(2, 4);
  Plan plan = PlanJob(job, {.wants_rates = true}, nullptr);
  const auto step = [&](std::vector<double> slowness) {
    plan.slowness = std::move(slowness);
    CutEvaluator evaluator(job, plan, nullptr);
    return evaluator.Of({0, 8, 16}, {0, 1}, "1f1b").step;
  };
  EXPECT_DOUBLE_EQ(step({1, 1}), step({}));
  EXPECT_GT(step({1, 3}), 1.5 * step({}));
}

/// Climbs on |bounds[1] - 7| + |bounds[2] - 20|, where steps beside a bound may be forbidden.
TEST(Climb, GoesToTheBestAndStopsWithTheEffort) {
  const auto climb = [](Effort effort, const std::vector<int>& wall) {
    std::vector<int> best = {0, 10, 12, 30};
    const auto price = [](const std::vector<int>& b) {
      return std::abs(b[1] - 7) + std::abs(b[2] - 20);
    };
    const auto attempt = [&](const std::vector<int>& bounds) {
      if (!effort.Spend(1) || price(bounds) >= price(best) || bounds == wall) return false;
      best = bounds;
      return true;
    };
    EXPECT_EQ(Climb(best, {attempt}, effort), best);
    return best;
  };
  EXPECT_THAT(climb(Effort(1000), {}), ElementsAre(0, 7, 20, 30));
  EXPECT_THAT(climb(Effort(1000), {0, 9, 12, 30}), ElementsAre(0, 7, 20, 30));
  EXPECT_THAT(climb(Effort(0), {}), ElementsAre(0, 10, 12, 30));
  EXPECT_THAT(climb(Effort(1), {}), ElementsAre(0, 9, 12, 30));
}

/// Two layers on a bound may move at once, and a bound goes to where fewer bytes cross.
TEST(Climb, GoesFurtherWhereItsNeighboursAreNoBetter) {
  const auto climb = [](int goal, bool knows_bytes) {
    std::vector<int> best = {0, 10, 20};
    const auto attempt = [&](const std::vector<int>& bounds) {
      if (bounds[1] != goal) return false;
      best = bounds;
      return true;
    };
    ClimbRules rules = {attempt};
    if (knows_bytes) rules.crossing = [](int place) { return place == 4 ? 1 : 2; };
    return Climb(best, rules, Effort(1000))[1];
  };
  EXPECT_EQ(climb(12, false), 12);
  EXPECT_EQ(climb(8, true), 8);
  EXPECT_EQ(climb(4, false), 10);
  EXPECT_EQ(climb(4, true), 4);
}

}  // namespace
}  // namespace strata
