// Plans for ranks that differ in speed and memory: the cuts are the best of all cuts, a step takes
// what the sum of the speeds allows, and each rank keeps to its own memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/forecast/evaluate.h"
#include "engine/forecast/planned_program.h"
#include "engine/plan/cut/all_cuts.h"
#include "engine/plan/plan_costs.h"
#include "engine/plan/plan_testing.h"
#include "engine/plan/plan_text.h"
#include "engine/plan/rank_speeds.h"
#include "engine/search/cut_evaluator.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// Layer i takes `weights[i]` milliseconds, a third of it in each pass.
Measure Measuring(std::vector<double> weights) {
  return [weights](const MeasureTask&) {
    Profile profile;
    for (const double weight : weights) {
      profile.layers.push_back({weight / 3e3, weight / 3e3, weight / 3e3});
    }
    profile.action = 0;
    return profile;
  };
}

/// A job of `layers` Linear layers whose cuts are free, for ranks of these speeds.
Job UnequalJob(const std::vector<double>& speeds, int layers, int64_t micro_batches) {
  ::unsetenv("STRATA_RATES");
  Job job = DeepJob(static_cast<int>(speeds.size()), micro_batches);
  job.layers.assign(static_cast<size_t>(layers), Make("Linear", {64, 64}));
  job.partition.method = "auto";
  job.schedule.name = "1f1b";
  job.transport = "threads";
  for (size_t rank = 0; rank < speeds.size(); ++rank) {
    job.ranks.rules.push_back({.who = Str(rank), .speed = speeds[rank]});
  }
  return job;
}

StepEvaluation StepOf(const Job& job, const Plan& plan) {
  const auto micro_batches = static_cast<int>(plan.batch.micro_batches);
  return Evaluate(PlacedHere(job, plan, *plan.costs),
                  TrainingProgram(job, plan, micro_batches, nullptr));
}

TEST(UnequalRanks, NoCutHasAShorterStep) {
  std::mt19937 random(7);
  const std::vector<double> kSpeeds = {0.25, 0.5, 0.7, 1, 1.5, 3};
  int unequal = 0;
  for (int i = 0; i < 60; ++i) {
    std::vector<double> weights, speeds;
    for (int l = 0; l < 10; ++l) weights.push_back(1.0 + static_cast<double>(random() % 9));
    for (int r = 0; r < 2 + i % 3; ++r) speeds.push_back(kSpeeds[random() % kSpeeds.size()]);
    Job job = UnequalJob(speeds, 10, 8);
    job.schedule.name = i % 2 == 0 ? "1f1b" : "zb_h1";
    job.memory = int64_t{1} << 30;  // only the time counts
    const Plan plan = PlanJob(job, {.measure = Measuring(weights)}, nullptr);
    CutEvaluator evaluator(job, plan, nullptr);
    double least = 1e9;
    partition::ForEachCut(10, job.parallel.pipe, [&](const std::vector<int>& bounds) {
      least = std::min(least, evaluator.Of(bounds, plan.stage_ranks(), plan.schedule).step);
    });
    EXPECT_LE(StepOf(job, plan).step, 1.001 * least) << i << ": " << Join(speeds, " ");
    job.ranks = {};
    unequal += PlanJob(job, {.measure = Measuring(weights)}, nullptr).bounds != plan.bounds;
  }
  EXPECT_GT(unequal, 40) << "speeds matter";
}

/// Two and four ranks of the speeds that processor quotas of 1:2 and 1:1:2:4 give. The throughput
/// that the sum of the speeds allows is that of a step whose every rank computes its share of the
/// work all the time. One layer is 1/48 of the work here.
TEST(UnequalRanks, StepsTakeWhatTheSumOfTheSpeedsAllows) {
  const std::vector<std::vector<double>> all = {{1, 2}, {2, 1}, {1, 1, 2, 4}, {4, 2, 1, 1}};
  for (const std::vector<double>& speeds : all) {
    for (const char* schedule : {"1f1b", "zb_h1", "auto"}) {
      Job job = UnequalJob(speeds, 48, 96);
      job.schedule.name = schedule;
      const Plan plan = PlanJob(job, {.measure = Measuring(std::vector<double>(48, 1))}, nullptr);
      double work = 0;
      for (const StageCost& stage : StageCosts(*plan.costs, plan)) work += stage.seconds();
      const double bound = 96 * work / std::accumulate(speeds.begin(), speeds.end(), 0.0);
      EXPECT_GE(bound / StepOf(job, plan).step, 0.95) << Join(speeds, ":") << " " << schedule;
      job.ranks = {};
      Plan equal = PlanJob(job, {.measure = Measuring(std::vector<double>(48, 1))}, nullptr);
      equal.slowness = plan.slowness;
      EXPECT_LE(bound / StepOf(job, equal).step, 0.85) << "equal cuts are worse";
    }
  }
}

TEST(UnequalRanks, AStageHasThePaceOfItsSlowestReplica) {
  Job job = UnequalJob({}, 12, 8);
  job.parallel = {2, 2, 1};
  job.ranks.rules = {{.who = "1", .speed = 0.5}, {.who = "2-3", .speed = 2}};
  const Plan plan = PlanJob(job, {.measure = Measuring(std::vector<double>(12, 1))}, nullptr);
  EXPECT_THAT(plan.slowness, ElementsAre(2, 0.5)) << "ranks 0 and 1, ranks 2 and 3";
  EXPECT_THAT(PlanText(plan), AllOf(HasSubstr("speed"), HasSubstr("0.5")));
}

TEST(RelativeSpeeds, TakeNoNoticeOfWhatEqualRanksDifferBy) {
  EXPECT_THAT(RelativeSpeeds({10, 9.1, 8.9, 5.1, 0.01}), ElementsAre(1, 1, 0.9, 0.5, 0.05));
  EXPECT_EQ(SpeedsText({1, 1, 0.5}), "1 on ranks 0 to 1, 0.5 on rank 2");
}

/// The memory that each rank of a plan takes.
std::vector<int64_t> Memories(const StepEvaluation& step) {
  std::vector<int64_t> memories;
  for (const RankForecast& rank : step.ranks) memories.push_back(rank.memory.total());
  return memories;
}

TEST(UnequalRanks, ARankWithHalfOfTheMemoryFits) {
  Job job = UnequalJob({1, 1}, 16, 4);
  const PlanOptions options = {.measure = Measuring(std::vector<double>(16, 1))};
  const auto memories = [&] { return Memories(StepOf(job, PlanJob(job, options, nullptr))); };
  job.batch.micro_batch_size = 1024;  // activations are most of the memory
  const std::vector<int64_t> needed = memories();
  for (const bool recomputes : {false, true}) {
    if (recomputes) {
      job.partition = {"cuts", {0, 8, 16}, {}};
      job.recompute.method = RecomputeSpec::Method::kAuto;
    }
    for (const int rank : {0, 1}) {
      const int64_t limit = needed[rank] * 7 / 10;
      job.ranks = {};
      job.memory = limit;
      if (!recomputes) {
        EXPECT_THAT(ErrorOf([&] { memories(); }), HasSubstr("memory")) << "a limit for all";
      }
      job.memory = 2 * needed[0];  // more than twice the limit
      job.ranks.rules = {{.who = Str(rank), .memory = limit}};
      const Plan plan = PlanJob(job, options, nullptr);
      EXPECT_LE(Memories(StepOf(job, plan))[rank], limit);
      const auto again = [&](int stage) {
        return std::ranges::any_of(plan.layers, [&](const LayerPlan& layer) {
          return layer.stage == stage && layer.segment >= 0;
        });
      };
      EXPECT_EQ(again(rank), recomputes);
      EXPECT_FALSE(again(1 - rank)) << "it has room";
      EXPECT_THAT(PlanText(plan), HasSubstr("memory"));
    }
  }
}

TEST(UnequalRanks, ARankThatDoesNotFitIsNamed) {
  Job job = UnequalJob({1, 1}, 16, 4);
  job.memory = int64_t{1} << 30;
  job.ranks.rules = {{.who = "1", .memory = 1000}};
  const auto error = [&] { return ErrorOf([&] { PlanJob(job, {}, nullptr); }); };
  EXPECT_THAT(error(), AllOf(HasSubstr("memory: rank 1 would need"), HasSubstr("allows 1000 B")));
  job.partition = {"cuts", {0, 8, 16}, {}};
  EXPECT_THAT(error(), AllOf(HasSubstr("memory: rank 1 would need"), HasSubstr("allows 1000 B")));
  job.recompute.method = RecomputeSpec::Method::kAuto;
  EXPECT_THAT(error(), AllOf(HasSubstr("memory: rank 1 needs at least"), HasSubstr("1000 B")));
}

}  // namespace
}  // namespace strata
