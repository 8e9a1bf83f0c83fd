// Tests of recompute = "auto": PlanJob() with RecomputeChooser.
#include "engine/search/recompute_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "engine/base/error.h"
#include "engine/base/testing.h"
#include "engine/forecast/planned_program.h"
#include "engine/forecast/step_costs.h"
#include "engine/plan/plan_costs.h"
#include "engine/plan/plan_testing.h"
#include "engine/plan/recompute.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

/// A job whose layers have different sizes.
Job UnevenJob(int layers, int pipe) {
  Job job;
  const int widths[] = {64, 256, 32, 128};
  for (int i = 0; i < layers; ++i) {
    if (i % 3 == 2) {
      job.layers.push_back(Make("Tanh"));
      continue;
    }
    const int wide = widths[i % 4];
    job.layers.push_back(Make(
        "TransformerEncoderLayer", {64, 4},
        {{"dim_feedforward", 2 * wide}, {"batch_first", true}, {"dropout", i % 2 ? 0.1 : 0.0}}));
  }
  job.input = TensorSpec{{16, 64}};
  job.loss = Make("MSELoss");
  job.batch = {.micro_batches = 8, .micro_batch_size = 16};
  job.parallel.pipe = pipe;
  job.partition.method = "uniform";
  job.device = "cpu";
  job.optimizer.options.Set("momentum", 0.9);
  return job;
}

Job Auto(Job job, int64_t memory) {
  job.recompute.method = RecomputeSpec::Method::kAuto;
  job.memory = memory;
  return job;
}

std::vector<RankMemory> Memory(const Job& job, const Plan& plan) {
  const int micro_batches = static_cast<int>(plan.batch.micro_batches);
  return ForecastMemory(job, plan, CostsOf(job, plan, nullptr),
                        TrainingProgram(job, plan, micro_batches, nullptr));
}

/// The seconds of each stage's recomputation on a nominal core.
std::vector<double> Recomputed(const Job& job, const Plan& plan) {
  ModelCosts costs = CostsOf(job, plan, nullptr);
  SetSeconds(costs, NominalDevice("cpu"));
  std::vector<double> seconds;
  for (const StageCost& stage : StageCosts(costs, plan)) {
    seconds.push_back(stage.recompute.seconds);
  }
  return seconds;
}

std::string ErrorOf(const Job& job) {
  return ConfigErrorOf([&] { PlanJob(job, {}, nullptr); });
}

/// The peak of the fullest rank with a fixed way to recompute.
int64_t PeakWith(Job job, const RecomputeSpec& recompute) {
  job.recompute = recompute;
  return LargestTotal(Memory(job, PlanJob(job, {}, nullptr)));
}

/// Calls `each` for every way to recompute layers `begin` to `end`; the other layers stay as they
/// are.
void ForAllSegments(Plan plan, int begin, int end, const std::function<void(const Plan&)>& each) {
  const std::function<void(int, int)> from = [&](int i, int next) {
    if (i == end) return each(plan);
    int& segment = plan.layers[i].segment;
    segment = -1;
    from(i + 1, next);
    if (i > begin && plan.layers[i - 1].segment >= 0) {
      segment = next - 1;
      from(i + 1, next);
    }
    segment = next;
    from(i + 1, next + 1);
  };
  from(begin, 1000 * (begin + 1));
}

Plan Cleared(Plan plan) {
  for (LayerPlan& layer : plan.layers) layer.segment = -1;
  return plan;
}

TEST(RecomputeChoice, WithoutALimitNothingIsRecomputed) {
  const Plan plan = PlanJob(Auto(UnevenJob(6, 2), 0), {}, nullptr);
  EXPECT_TRUE(RecomputedStages(plan).empty());
  EXPECT_THAT(plan.notices, Contains(HasSubstr("there is no limit")));
}

TEST(RecomputeChoice, WhatFitsIsKept) {
  const Plan plan = PlanJob(Auto(UnevenJob(6, 2), 1 << 30), {}, nullptr);
  EXPECT_TRUE(RecomputedStages(plan).empty());
  EXPECT_THAT(plan.notices, Contains(HasSubstr("all fits into 1.00 GiB")));
}

TEST(RecomputeChoice, KeepsToEveryLimitThatCanBeKept) {
  for (const char* schedule : {"1f1b", "gpipe", "zb_h1", "zb_h2"}) {
    Job job = UnevenJob(9, 3);
    job.schedule.name = schedule;
    const int64_t most = PeakWith(job, {});
    double before = 0;
    int refused = 0;
    for (int percent = 100; percent >= 10; percent -= 5) {
      const Job limited = Auto(job, most * percent / 100);
      Plan plan;
      try {
        plan = PlanJob(limited, {}, nullptr);
      } catch (const ConfigError&) {
        ++refused;
        continue;
      }
      EXPECT_EQ(refused, 0) << schedule << ": " << percent << " % fit where more did not";
      EXPECT_LE(LargestTotal(Memory(limited, plan)), limited.memory) << schedule << percent;
      const std::vector<double> stages = Recomputed(limited, plan);
      double now = 0;
      for (const double seconds : stages) now += seconds;
      EXPECT_GE(now, before) << schedule << ": less memory costs no less time";
      before = now;
    }
    EXPECT_GT(before, 0) << schedule;
    EXPECT_GT(refused, 0) << schedule;
  }
}

// Compares with all possible ways, using the same prediction.
TEST(RecomputeChoice, IsTheCheapestOfAllThatFit) {
  for (const char* schedule : {"1f1b", "gpipe", "zb_h2"}) {
    Job job = UnevenJob(10, 2);
    job.schedule.name = schedule;
    const int64_t most = PeakWith(job, {});
    for (int percent = 95; percent >= 50; percent -= 15) {
      const Job limited = Auto(job, most * percent / 100);
      if (ErrorOf(limited) != "no error") continue;
      const Plan plan = PlanJob(limited, {}, nullptr);
      const std::vector<double> chosen = Recomputed(limited, plan);
      for (const StagePlan& stage : plan.stages) {
        const auto s = static_cast<size_t>(stage.stage);
        double least = std::numeric_limits<double>::infinity();
        ForAllSegments(Cleared(plan), stage.begin, stage.end, [&](const Plan& tried) {
          const auto rank = static_cast<size_t>(stage.rank);
          if (Memory(limited, tried)[rank].total() > limited.memory) return;
          least = std::min(least, Recomputed(limited, tried)[s]);
        });
        EXPECT_DOUBLE_EQ(chosen[s], least) << schedule << " " << percent << " stage " << s;
      }
    }
  }
}

TEST(RecomputeChoice, NeverRunsMaxNormAgain) {
  Job job = UnevenJob(6, 1);
  job.layers = {Make("Embedding", {50, 32}, {{"max_norm", 0.7}}),
                Make("Linear", {32, 64}),
                Make("GELU"),
                Make("Linear", {64, 64}),
                Make("GELU"),
                Make("Linear", {64, 50})};
  job.input = TensorSpec{{64}, DType::kInt64};
  job.schedule.name = "gpipe";
  const int64_t most = PeakWith(job, {});
  int again = 0;
  for (int percent = 95; percent >= 10; percent -= 5) {
    const Job limited = Auto(job, most * percent / 100);
    if (ErrorOf(limited) != "no error") continue;
    const Plan plan = PlanJob(limited, {}, nullptr);
    EXPECT_LT(plan.layers[0].segment, 0) << percent;
    again += RecomputedStages(plan).empty() ? 0 : 1;
  }
  EXPECT_GT(again, 0) << "other layers are";
}

TEST(RecomputeChoice, StagesOfARankShareItsMemory) {
  Job job = UnevenJob(12, 2);
  job.schedule.name = "interleaved_1f1b";
  job.stages_per_rank = 2;
  const int64_t most = PeakWith(job, {});
  for (int percent = 95; percent >= 65; percent -= 10) {
    const Job limited = Auto(job, most * percent / 100);
    if (ErrorOf(limited) != "no error") continue;
    const Plan plan = PlanJob(limited, {}, nullptr);
    const std::vector<double> chosen = Recomputed(limited, plan);
    const StagePlan &first = plan.stages[0], &second = plan.stages[2];
    double least = std::numeric_limits<double>::infinity();
    ForAllSegments(Cleared(plan), first.begin, first.end, [&](const Plan& half) {
      ForAllSegments(half, second.begin, second.end, [&](const Plan& tried) {
        if (Memory(limited, tried)[0].total() > limited.memory) return;
        const std::vector<double> seconds = Recomputed(limited, tried);
        least = std::min(least, seconds[0] + seconds[2]);
      });
    });
    EXPECT_NEAR(chosen[0] + chosen[2], least, 1e-12) << percent;
  }
}

TEST(RecomputeChoice, FixedWaysAreNeverBetter) {
  Job job = UnevenJob(12, 2);
  using Method = RecomputeSpec::Method;
  for (const RecomputeSpec& fixed : {RecomputeSpec{.method = Method::kStages},
                                     RecomputeSpec{.method = Method::kEvery, .every = 1},
                                     RecomputeSpec{.method = Method::kEvery, .every = 2}}) {
    const int64_t peak = PeakWith(job, fixed);
    const Job limited = Auto(job, peak);
    const Plan plan = PlanJob(limited, {}, nullptr);
    EXPECT_LE(LargestTotal(Memory(limited, plan)), peak);
    Job other = job;
    other.recompute = fixed;
    const std::vector<double> chosen = Recomputed(limited, plan);
    const std::vector<double> theirs = Recomputed(other, PlanJob(other, {}, nullptr));
    for (size_t s = 0; s < chosen.size(); ++s) EXPECT_LE(chosen[s], theirs[s]);
  }
}

TEST(RecomputeChoice, NamesTheRankThatCannotKeepToTheLimit) {
  Job job = UnevenJob(9, 3);
  job.parallel.data = 2;
  EXPECT_THAT(ErrorOf(Auto(job, 100'000)),
              AllOf(HasSubstr("memory: rank 0 needs at least "),
                    HasSubstr("with schedule 1f1b, whatever is recomputed (weights "),
                    HasSubstr(", the job allows 97.7 KiB; partition = \"memory\", zero = 1, "
                              "smaller micro-batches or more stages need less")));
}

TEST(RecomputeChoice, CutsByMemoryKnowThatItHelps) {
  Job job = UnevenJob(12, 2);
  job.partition.method = "memory";
  const int64_t kept = PeakWith(job, {});
  // This is less than any cut needs without recomputation.
  const Job limited = Auto(job, kept * 3 / 4);
  const Plan plan = PlanJob(limited, {}, nullptr);
  EXPECT_FALSE(RecomputedStages(plan).empty());
  EXPECT_LE(LargestTotal(Memory(limited, plan)), limited.memory);
  Job fixed = job;
  fixed.memory = limited.memory;
  EXPECT_THAT(ErrorOf(fixed), HasSubstr("memory"));
}

// Of three layers that keep equally much, the slowest one is kept. Two must be recomputed: what R
// brings back of the last one is in memory at the peak.
TEST(RecomputeChoice, MeasuredSecondsDecide) {
  constexpr int kAlike[] = {0, 1, 3};
  Job job = UnevenJob(6, 1);
  for (const int i : kAlike) job.layers[i] = job.layers[0];
  const int64_t limit = PeakWith(job, {}) - 1000;
  job.partition.method = "time";
  for (const int dear : kAlike) {
    const Measure measure = [&](const MeasureTask& task) {
      Profile profile;
      profile.layers.assign(task.job->layers.size(), {10, 10, 10});
      for (const int i : kAlike) profile.layers[i].forward = i == dear ? 9 : 1;
      return profile;
    };
    const Plan plan = PlanJob(Auto(job, limit), {.measure = measure}, nullptr);
    for (const int i : kAlike) {
      EXPECT_EQ(plan.layers[i].segment < 0, i == dear) << i << " " << dear;
    }
  }
}

TEST(RecomputeChoice, ASearchedScheduleHasTheRestOfTheMemory) {
  Job job = UnevenJob(12, 2);
  const int64_t most = PeakWith(job, {});
  for (int percent = 100; percent >= 60; percent -= 10) {
    Job limited = Auto(job, most * percent / 100);
    if (ErrorOf(limited) != "no error") continue;
    limited.schedule.name = "auto";
    const Plan plan = PlanJob(limited, {}, nullptr);
    EXPECT_LE(LargestTotal(Memory(limited, plan)), limited.memory) << percent;
  }
}

}  // namespace
}  // namespace strata
