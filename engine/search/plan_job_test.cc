// Tests of what PlanJob() chooses for "auto".
#include "engine/search/plan_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/forecast/memory_forecast.h"
#include "engine/forecast/planned_program.h"
#include "engine/forecast/step_costs.h"
#include "engine/plan/plan_costs.h"
#include "engine/plan/plan_testing.h"
#include "engine/plan/plan_text.h"
#include "engine/schedule/generators/generators.h"

namespace strata {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

/// A job that leaves everything open.
Job AutoJob(int pipe, int64_t micro_batches) {
  ::unsetenv("STRATA_RATES");  // no measured rates from the environment
  Job job = DeepJob(pipe, micro_batches);
  job.partition.method = "auto";
  job.schedule.name = "auto";
  job.stages_per_rank = 0;
  return job;
}

/// Layer i takes `weights[i]` milliseconds, a third of it in each pass.
Measure Measuring(std::vector<double> weights) {
  return [weights](const MeasureTask&) {
    Profile profile;
    for (const double weight : weights) {
      profile.layers.push_back({weight / 3e3, weight / 3e3, weight / 3e3});
    }
    return profile;
  };
}

std::vector<double> Uneven() { return {9, 1, 4, 1, 2, 2, 7, 1, 1, 1, 3, 1, 5, 1, 2, 6}; }

double SecondsOf(const Job& job, const Plan& plan) {
  const auto micro_batches = static_cast<int>(plan.batch.micro_batches);
  const schedule::Program program = TrainingProgram(job, plan, micro_batches, nullptr);
  return Simulate(program, StepCosts(job, plan, *plan.costs, LinksOfStages(plan))).makespan;
}

TEST(PlanJobAuto, NoNamedWayIsFaster) {
  double most_saved = 0;
  for (const int pipe : {2, 3, 4}) {
    const Job job = AutoJob(pipe, 6);
    const PlanOptions options = {.measure = Measuring(Uneven())};
    const Plan chosen = PlanJob(job, options, nullptr);
    ASSERT_EQ(chosen.costs->seconds_from, SecondsFrom::kMeasured);
    const double seconds = SecondsOf(job, chosen);
    EXPECT_TRUE(AccumulatesInOrder(TrainingProgram(job, chosen, 6, nullptr))) << "other bits";
    Job simple = job;
    simple.schedule.name = "1f1b";
    const Plan one = PlanJob(simple, options, nullptr);
    const int64_t memory = LargestTotal(
        ForecastMemory(simple, one, *one.costs, TrainingProgram(simple, one, 6, nullptr)));
    for (const std::string& name : schedule::TriedSchedules()) {
      for (const int v : {1, 2, 3}) {
        if (!schedule::Fits(name, {pipe, v, 6})) continue;
        Job named = job;
        named.partition.method = "time";
        named.schedule.name = name;
        named.stages_per_rank = v;
        const Plan plan = PlanJob(named, options, nullptr);
        const auto program = TrainingProgram(named, plan, 6, nullptr);
        if (LargestTotal(ForecastMemory(named, plan, *plan.costs, program)) > memory) continue;
        EXPECT_LE(seconds * (1 - kLeastSaving), SecondsOf(named, plan))
            << pipe << " " << name << " " << v;
      }
    }
    Job old = job;
    old.partition.method = "parameters";
    old.schedule.name = "1f1b";
    old.stages_per_rank = 1;
    const PlanOptions rated = {.measure = options.measure, .wants_rates = true};
    const double before = SecondsOf(old, PlanJob(old, rated, nullptr));
    EXPECT_LT(seconds, before) << pipe;
    most_saved = std::max(most_saved, 1 - seconds / before);
    EXPECT_THAT(chosen.notices, Contains(HasSubstr("% less than cuts by parameters with 1f1b")));
  }
  EXPECT_GT(most_saved, 0.1);
}

TEST(PlanJobAuto, KeepsWhatIsNamed) {
  const PlanOptions options = {.measure = Measuring(Uneven())};
  Job job = AutoJob(2, 6);
  job.partition = {"cuts", {0, 3, 16}, {}};
  EXPECT_THAT(PlanJob(job, options, nullptr).bounds, ElementsAre(0, 3, 16));
  job.partition = {"cuts", {0, 3, 5, 9, 16}, {}};
  EXPECT_EQ(PlanJob(job, options, nullptr).stages_per_rank(), 2);
  job = AutoJob(2, 6);
  job.schedule.name = "zbv";
  const Plan on_a_v = PlanJob(job, options, nullptr);
  EXPECT_EQ(on_a_v.schedule, "zbv");
  EXPECT_THAT(on_a_v.stage_ranks(), ElementsAre(0, 1, 1, 0));
  job = AutoJob(2, 6);
  job.partition.method = "uniform";
  EXPECT_THAT(PlanJob(job, options, nullptr).bounds, ElementsAre(0, 8, 16)) << "one stage a rank";
  job = AutoJob(2, 6);
  job.stages_per_rank = 3;
  EXPECT_EQ(PlanJob(job, options, nullptr).stages.size(), 6U);
}

/// Eight equal layers, but the second has a small output and the others a large one.
Job NarrowInFront() {
  Job job = AutoJob(2, 4);
  job.stages_per_rank = 1;
  const auto linear = [](int in, int out) { return MakeLayer("Linear", {in, out}, {}, {}, ""); };
  job.layers = {linear(64, 64), linear(64, 2),  linear(2, 64),  linear(64, 64),
                linear(64, 64), linear(64, 64), linear(64, 64), linear(64, 64)};
  return job;
}

/// Equal layers on two ranks. 1f1b and zb_h1 are fastest if both ranks have equally many. zb_h2,
/// which runs more warm-up micro-batches, is fastest if the first rank, which starts first, has
/// more.
TEST(PlanJobAuto, SchedulesHaveCutsOfTheirOwn) {
  Job job = NarrowInFront();
  job.layers.assign(24, MakeLayer("Linear", {64, 64}, {}, {}, ""));
  job.memory = int64_t{1} << 30;  // only the time counts
  const PlanOptions options = {.measure = Measuring(std::vector<double>(24, 1))};
  const Plan chosen = PlanJob(job, options, nullptr);
  EXPECT_EQ(chosen.schedule, "zb_h2");
  EXPECT_THAT(chosen.bounds, ElementsAre(0, 13, 24));
  const double seconds = SecondsOf(job, chosen);
  for (const char* name : {"1f1b", "zb_h1"}) {
    job.schedule.name = name;
    const Plan named = PlanJob(job, options, nullptr);
    EXPECT_THAT(named.bounds, ElementsAre(0, 12, 24)) << name;
    EXPECT_LT(seconds, SecondsOf(job, named)) << name;
  }
}

TEST(PlanJobAuto, ASlowLinkMovesTheCutToWhereLessCrosses) {
  Job job = NarrowInFront();
  job.schedule.name = "1f1b";
  const auto cut = [&](double bandwidth) {
    const auto links = std::make_shared<const LinkTable>("gloo", std::vector<std::string>{"a", "b"},
                                                         std::vector<LinkRates>{{1e-5, bandwidth}});
    const Plan plan =
        PlanJob(job, {.measure = Measuring(std::vector<double>(8, 1)), .links = links}, nullptr);
    EXPECT_THAT(plan.notices, Contains(HasSubstr("and measured links")));
    return plan.bounds;
  };
  EXPECT_THAT(cut(1e9), ElementsAre(0, 4, 8)) << "where both stages take as long";
  // 16 KiB cross at this cut and at those beside it, and 512 B after the second layer. That takes
  // 16 ms and 0.5 ms per micro-batch, whose layers take 8 ms.
  EXPECT_THAT(cut(1e6), ElementsAre(0, 2, 8));
}

TEST(PlanJob, FilesOfLinksThatAreNotTheJobs) {
  const std::string path =
      (std::filesystem::path(testing::TempDir()) / "plan_job_test_links.json").string();
  const auto error = [&](Job job, const std::string& transport, size_t ranks) {
    const std::vector<LinkRates> pairs(ranks * (ranks - 1) / 2, {1e-5, 1e9});
    std::ofstream(path)
        << ToValue(LinkTable(transport, std::vector<std::string>(ranks, "a"), pairs)).ToJson();
    job.links = path;
    try {
      return Join(PlanJob(job, {}, nullptr).notices, "; ");
    } catch (const ConfigError& wrong) {
      return std::string(wrong.what());
    }
  };
  Job job = AutoJob(4, 4);
  EXPECT_THAT(error(job, "gloo", 3), HasSubstr("between 3 ranks, the job has 4; measure them: "
                                               "strata doctor --links --ranks=4"));
  EXPECT_THAT(error(job, "nccl", 4), HasSubstr("over nccl, the job's transport is gloo"));
  EXPECT_THAT(error(job, "gloo", 5), HasSubstr("the job's 4 are taken to be the first of them"));
  job.transport = "threads";
  EXPECT_THAT(error(job, "gloo", 4), HasSubstr("is not needed: the ranks are threads"));
}

TEST(PlanJobAuto, PrefersTheSimplestOfEquals) {
  // With a single micro-batch stages run one after the other, and no W can be delayed.
  const Measure measure = [](const MeasureTask& task) {
    Profile profile;
    profile.layers.assign(task.job->layers.size(), {1e-3, 1e-3, 0});
    return profile;
  };
  const Plan plan = PlanJob(AutoJob(4, 1), {.measure = measure}, nullptr);
  EXPECT_EQ(plan.schedule, "1f1b");
  EXPECT_EQ(plan.stages_per_rank(), 1);
  EXPECT_THAT(plan.bounds, ElementsAre(0, 4, 8, 12, 16));
}

TEST(PlanJobAuto, OneStageCostsNothing) {
  int asked = 0;
  const Measure measure = [&](const MeasureTask&) {
    ++asked;
    return Profile();
  };
  const Plan plan = PlanJob(AutoJob(1, 4), {.measure = measure}, nullptr);
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(plan.schedule, "1f1b");
  EXPECT_EQ(plan.costs, nullptr);
}

TEST(PlanJobAuto, OneStageIsPredictedByWhatIsKnown) {
  bool is_known = false;
  const Measure measure = [&](const MeasureTask& task) {
    EXPECT_TRUE(task.only_known) << "nothing is measured for it";
    Profile profile;
    if (is_known) profile.layers.assign(task.job->layers.size(), {1e-3, 1e-3, 1e-3});
    return profile;
  };
  const PlanOptions options = {.measure = measure, .wants_known = true};
  const Job job = AutoJob(1, 4);
  EXPECT_EQ(PlanJob(job, options, nullptr).costs, nullptr);
  is_known = true;
  const Plan plan = PlanJob(job, options, nullptr);
  ASSERT_NE(plan.costs, nullptr);
  EXPECT_EQ(plan.costs->seconds_from, SecondsFrom::kMeasured);
  ::setenv("STRATA_RATES", "stated", 1);
  EXPECT_EQ(PlanJob(job, options, nullptr).costs, nullptr);
  ::unsetenv("STRATA_RATES");
}

/// Each layer takes `all` milliseconds in a pass, or `own` if the plan has run before.
Measure Remembering(double all, double own, std::vector<PlanTraits>& asked) {
  return [=, &asked](const MeasureTask& task) {
    EXPECT_TRUE(task.only_known) << "nothing is measured for it";
    asked.push_back(task.plan);
    Profile profile;
    profile.ran = {RanPlan()};
    const double seconds = (task.plan.places.empty() ? all : own) / 1e3;
    if (seconds > 0) {
      profile.layers.assign(task.job->layers.size(), {seconds, seconds, seconds});
    }
    return profile;
  };
}

TEST(PlanJobAuto, IsPredictedByItsOwnRuns) {
  const Job chosen = AutoJob(2, 4);
  Job named = DeepJob(2, 4);
  named.partition = {"cuts", {0, 8, 16}, {}};
  for (const Job& job : {chosen, named}) {
    std::vector<PlanTraits> asked;
    PlanOptions options = {.measure = Remembering(1, 2, asked), .wants_known = true};
    const Plan plan = PlanJob(job, options, nullptr);
    EXPECT_EQ(plan.costs->layers[3].forward.seconds, 2e-3);
    EXPECT_EQ(plan.costs->seconds_from, SecondsFrom::kMeasured);
    EXPECT_THAT(asked, ElementsAre(PlanTraits(), TraitsOf(plan)));
    options.measure = Remembering(1, 0, asked);
    EXPECT_EQ(PlanJob(job, options, nullptr).costs->layers[3].forward.seconds, 1e-3)
        << "the plan has never run";
  }
}

TEST(PlanJobAuto, ANewPlanMustBeWorthMoreThanOneThatHasRun) {
  Job job = AutoJob(2, 8);
  job.schedule.name = "1f1b";
  job.stages_per_rank = 1;
  std::vector<double> weights(16, 1);
  const auto plan_of = [&](const std::vector<RanPlan>& ran) {
    const Measure measure = [&](const MeasureTask& task) {
      Profile profile = Measuring(weights)(task);
      profile.ran = ran;
      return profile;
    };
    const Plan plan = PlanJob(job, {.measure = measure}, nullptr);
    return RanPlan{plan.bounds, plan.stage_ranks(), plan.schedule};
  };
  const RanPlan before = plan_of({});
  while (plan_of({}) == before) weights[0] += 0.1;  // until another plan is a little better
  EXPECT_EQ(plan_of({before}), before);
  const RanPlan bad = {{0, 3, 16}, {0, 1}, "1f1b"}, unknown = {{0, 3, 16}, {1, 0}, "gpipe"};
  EXPECT_EQ(plan_of({bad, before, unknown}), before) << "of those that ran the best";
  EXPECT_EQ(plan_of({bad, unknown}), plan_of({})) << "they are worth nothing";
  const RanPlan swapped = {before.bounds, {1, 0}, "1f1b"};
  EXPECT_EQ(plan_of({swapped}), plan_of({})) << "no way that is tried has its stages so";
  weights[0] = 8;
  EXPECT_NE(plan_of({before}), before) << "what is worth more is taken";
  const RanPlan broken = {{0, 30, 16}, {0, 1}, "1f1b"};
  EXPECT_EQ(plan_of({broken}), plan_of({})) << "somebody wrote into the file";
}

TEST(PlanJobAuto, PlacesOfLayersSayWhatTheirSecondsDependOn) {
  const Job job = DeepJob(2, 8);
  const auto places = [&](auto change) {
    Job other = job;
    change(other);
    return TraitsOf(PlanJob(other, {}, nullptr)).places[6];
  };
  EXPECT_EQ(places([](Job&) {}), "0 of 2 x 1");
  EXPECT_EQ(places([](Job& other) { other.schedule.name = "gpipe"; }), "0 of 2 x 1");
  EXPECT_EQ(places([](Job& other) { other.partition = {"cuts", {0, 6, 16}, {}}; }), "1 of 2 x 1");
  EXPECT_EQ(places([](Job& other) { other.parallel.data = 2; }), "0 of 2 x 2");
  EXPECT_EQ(places([](Job& other) { other.recompute.method = RecomputeSpec::Method::kStages; }),
            "0 of 2 x 1, recomputed");
  EXPECT_EQ(TraitsOf(PlanJob(job, {}, nullptr)).transport, "gloo");
}

TEST(PlanJobAuto, TakesNoTenthMoreMemoryThanTheSimplest) {
  const PlanOptions options = {.measure = Measuring(std::vector<double>(16, 1))};
  const auto memory = [](const Job& job, const Plan& plan) {
    return LargestTotal(
        ForecastMemory(job, plan, *plan.costs, TrainingProgram(job, plan, 16, nullptr)));
  };
  Job job = AutoJob(4, 16);
  const int64_t chosen = memory(job, PlanJob(job, options, nullptr));
  Job simplest = job;
  simplest.schedule.name = "1f1b";
  const int64_t least = memory(simplest, PlanJob(simplest, options, nullptr));
  EXPECT_LE(static_cast<double>(chosen), 1.1 * static_cast<double>(least));
  simplest.schedule.name = "gpipe";
  EXPECT_GT(static_cast<double>(memory(simplest, PlanJob(simplest, options, nullptr))),
            1.1 * static_cast<double>(least));
  job.memory = least + least / 5;
  EXPECT_LE(memory(job, PlanJob(job, options, nullptr)), job.memory);
  job.memory = least / 8;
  EXPECT_THROW(PlanJob(job, options, nullptr), ConfigError);
}

TEST(PlanJobAuto, TakesLessMemoryWhereItCostsNextToNoTime) {
  Job job = AutoJob(2, 8);
  const auto linear = [](int64_t out) {
    return MakeLayer("Linear", {1024, out}, {}, {}, "net.lua:3");
  };
  job.layers = {linear(1024), linear(1024), linear(8)};
  job.input = TensorSpec{{1024}};
  const auto bounds = [&](std::vector<double> weights) {
    return PlanJob(job, {.measure = Measuring(std::move(weights))}, nullptr).bounds;
  };
  EXPECT_THAT(bounds({500, 1, 502}), ElementsAre(0, 1, 3)) << "the parameters are apart";
  EXPECT_THAT(bounds({400, 100, 500}), ElementsAre(0, 2, 3));
}

/// Layers as uneven as AlexNet's, in milliseconds: no two stages take equally long, but two ranks
/// with several stages each can.
TEST(PlanJobAuto, RanksAreBalancedWhereNoStagesCanBe) {
  Job job = AutoJob(2, 4);
  job.memory = int64_t{1} << 30;  // only the time counts
  const PlanOptions options = {
      .measure = Measuring({40, 1, 100, 1, 1, 70, 1, 1, 1, 1, 60, 1, 1, 20, 1, 1})};
  const Plan chosen = PlanJob(job, options, nullptr);
  EXPECT_GT(chosen.stages_per_rank(), 1);
  const double seconds = SecondsOf(job, chosen);
  job.stages_per_rank = 1;
  EXPECT_LT(seconds, 0.9 * SecondsOf(job, PlanJob(job, options, nullptr)));
  job.stages_per_rank = 0;
  for (const std::string& name : schedule::TriedSchedules()) {
    job.schedule.name = name;
    EXPECT_LT(seconds, 0.93 * SecondsOf(job, PlanJob(job, options, nullptr))) << name;
  }
}

/// A searched program keeps fewer micro-batches alive if that costs hardly any time.
TEST(PlanJobAuto, ASearchWeighsMemory) {
  const Job job = AutoJob(2, 8);
  Plan plan = PlanJob(job, {.measure = Measuring(Uneven())}, nullptr);
  plan.schedule = "auto";
  const auto memory = [&] {
    return LargestTotal(
        ForecastMemory(job, plan, *plan.costs, TrainingProgram(job, plan, 8, nullptr)));
  };
  plan.program_memory = int64_t{1} << 40;  // the planner's own limit, which is never reached
  const int64_t weighed = memory();
  plan.program_memory = 0;
  EXPECT_LT(weighed, memory());
}

TEST(PlanJobAuto, FitsWhereTheSimplestFits) {
  // Cuts by time or by memory use an upper bound of a stage's memory.
  const PlanOptions options = {.measure = Measuring(Uneven())};
  Job simplest = AutoJob(3, 6);
  simplest.partition.method = "parameters";
  simplest.schedule.name = "1f1b";
  simplest.stages_per_rank = 1;
  const Plan old = PlanJob(simplest, {.measure = options.measure, .wants_rates = true}, nullptr);
  Job job = AutoJob(3, 6);
  job.memory = LargestTotal(
      ForecastMemory(simplest, old, *old.costs, TrainingProgram(simplest, old, 6, nullptr)));
  const Plan chosen = PlanJob(job, options, nullptr);
  EXPECT_LE(SecondsOf(job, chosen), SecondsOf(simplest, old) / (1 - kLeastSaving));
}

TEST(PlanJobAuto, TakesOtherCutsWhereThoseByTimeMayNotBe) {
  Job job = AutoJob(2, 4);
  job.parallel.model = 2;
  const auto make = [](const char* type, const Value::Map& options) {
    return MakeLayer(type, {64, 64}, options, {}, "net.lua:3");
  };
  const LayerSpec column = make("ColumnParallelLinear", {{"gather_output", false}});
  const LayerSpec row = make("RowParallelLinear", {});
  job.layers = {column, row, column, row};
  const Plan plan = PlanJob(job, {.measure = Measuring({9, 1, 1, 1})}, nullptr);
  EXPECT_THAT(plan.bounds, ElementsAre(0, 2, 4));
  EXPECT_THAT(plan.notices, Contains(HasSubstr("cuts by time would not do: ")));
}

TEST(PlanJobAuto, TakesNoTenthMoreActivationsWhereNothingIsKnown) {
  Job job = AutoJob(4, 16);
  job.input.reset();
  const auto most = [](const Job& job, const Plan& plan) {
    const auto peaks = Simulate(TrainingProgram(job, plan, 16, nullptr)).peak_activations;
    return *std::max_element(peaks.begin(), peaks.end());
  };
  const Plan plan = PlanJob(job, {}, nullptr);
  Job simplest = job;
  simplest.schedule.name = "1f1b";
  EXPECT_LE(most(job, plan), 1.1 * most(simplest, PlanJob(simplest, {}, nullptr)));
  EXPECT_THAT(plan.notices, Contains(HasSubstr("by parameters")));
}

TEST(RecutPlan, IsThePlanThatTheseCutsHave) {
  Job job = DeepJob(3, 6);
  for (const int tied : {2, 12}) {
    job.layers[tied].tied_key = "shared";
    job.layers[tied].tied_weights = {"weight"};
  }
  job.schedule.name = "zb_h1";
  job.recompute.method = RecomputeSpec::Method::kEvery;
  job.recompute.every = 2;
  const Plan plan = PlanJob(job, {}, nullptr);
  const std::vector<int> cuts = {0, 13, 15, 16};
  const Plan moved = RecutPlan(job, plan, cuts, nullptr, nullptr);
  job.partition = {"cuts", cuts, {}};
  const Plan expected = PlanJob(job, {}, nullptr);
  EXPECT_EQ(PlanValue(moved), PlanValue(expected));
  EXPECT_EQ(moved.segments(), expected.segments());
  EXPECT_EQ(moved.tied_stages(), expected.tied_stages());
  EXPECT_EQ(moved.schedule, expected.schedule);
  EXPECT_EQ(MovesText(plan, plan), "");
  EXPECT_EQ(
      MovesText(plan, moved),
      "layers 6..11 from rank 1 to rank 0, layer 12 from rank 2 to rank 0, layers 13..14 from "
      "rank 2 to rank 1");
}

}  // namespace
}  // namespace strata
