// Tests of plans that go by costs: partition = "time" and "memory", memory limits, files of costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/machine/cores.h"
#include "engine/base/testing.h"
#include "engine/cost/profile.h"
#include "engine/layers/testing_script.h"
#include "engine/plan/plan.h"
#include "engine/plan/plan_testing.h"

namespace strata {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Pretends that layer i takes `weights[i]` seconds, half of them forward.
Measure Measuring(std::vector<double> weights) {
  return [weights](const MeasureTask&) {
    Profile profile;
    for (const double weight : weights) {
      profile.layers.push_back({weight / 2, 0, weight / 2});
    }
    return profile;
  };
}

TEST(PartitionByTime, BalancesTheMeasuredSeconds) {
  Job job = DeepJob(2, 4);
  std::vector<double> weights(16, 1);
  weights[0] = weights[1] = 7;
  for (const char* method : {"time", "profile"}) {
    job.partition.method = method;
    const Plan plan = MakePlan(job, {.measure = Measuring(weights)}, nullptr);
    EXPECT_THAT(plan.bounds, ElementsAre(0, 2, 16));
    ASSERT_NE(plan.costs, nullptr);
    EXPECT_TRUE(plan.costs->is_measured());
  }
}

TEST(PartitionByTime, CountsTheLayersThatARecomputeFunctionChooses) {
  struct FirstOfAll : AnsweringScript {
    Value Call(const FunctionRef&, const Value::List& arguments) override {
      return arguments.at(0)["index"] == Value(0);
    }
  };
  Job job = DeepJob(2, 4);
  job.partition.method = "time";
  std::vector<double> weights(16, 1);
  weights[0] = 10.5;  // 15.75 if its forward runs twice
  const PlanOptions options = {.measure = Measuring(weights)};
  EXPECT_THAT(MakePlan(job, options, nullptr).bounds, ElementsAre(0, 3, 16));
  job.recompute = {.method = RecomputeSpec::Method::kFunction, .function = {1, "net.lua:4", "d"}};
  FirstOfAll script;
  EXPECT_THAT(MakePlan(job, options, &script).bounds, ElementsAre(0, 1, 16));
}

TEST(PartitionByTime, TheTaskSaysWhatRanksDo) {
  Job job = DeepJob(2, 4);
  job.partition.method = "time";
  job.threads = 1;
  std::optional<MeasureTask> asked;
  const Measure measure = [&](const MeasureTask& task) {
    asked = task;
    return Measuring(std::vector<double>(16, 1))(task);
  };
  MakePlan(job, {.measure = measure}, nullptr);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->threads, 1);
  EXPECT_EQ(asked->device, "cpu");
  EXPECT_EQ(asked->batch.micro_batch_size, 64);
  EXPECT_THAT(asked->input, ElementsAre(TensorSpec{{64, 64}}));
}

TEST(PartitionByTime, RefusesWhereNobodyCanMeasure) {
  Job job = DeepJob(2, 4);
  job.partition.method = "time";
  EXPECT_THAT(ConfigErrorOf([&] { MakePlan(job, {}, nullptr); }), HasSubstr("--write_costs"));
  job.input.reset();
  EXPECT_THAT(ConfigErrorOf([&] { MakePlan(job, {}, nullptr); }), HasSubstr("input's shape"));
}

TEST(PartitionByTime, TakesAFileOfCosts) {
  Job job = DeepJob(2, 4);
  job.partition.method = "time";
  Profile profile;
  profile.layers.assign(16, {1, 1, 1});
  profile.layers[0] = {40, 0, 0};
  MeasureTask task;
  task.job = &job;
  task.batch.micro_batch_size = 64;
  job.costs = testing::TempDir() + "costs.json";
  const auto write = [&](const std::string& text) { std::ofstream(job.costs) << text; };
  write(ProfileValue(profile, task).ToJson());
  job.threads = MachineCores();
  const Plan plan = MakePlan(job, {}, nullptr);
  EXPECT_THAT(plan.bounds, ElementsAre(0, 2, 16));
  EXPECT_THAT(plan.notices, Not(Contains(HasSubstr("share")))) << "it may be of another machine";
  job.threads = 0;
  job.batch.micro_batch_size = 32;
  EXPECT_THAT(ConfigErrorOf([&] { MakePlan(job, {}, nullptr); }), HasSubstr("micro_batch_size"));
  for (const char* text : {"{", "", "3"}) {
    write(text);
    EXPECT_THAT(ConfigErrorOf([&] { MakePlan(job, {}, nullptr); }), HasSubstr(job.costs)) << text;
  }
  job.costs = testing::TempDir();
  EXPECT_THAT(ConfigErrorOf([&] { MakePlan(job, {}, nullptr); }),
              HasSubstr("cannot read the file"));
}

/// A machine that answers for the job's own layers, if they are known or can be measured, and for
/// the probes of a calibration. Each measured pass takes a millisecond; if the layers are known,
/// the first one takes a second.
struct Machine {
  bool knows_layers = false;
  std::function<void()> fails = [] {};
  std::function<Profile(Profile)> measures = [](Profile profile) { return profile; };
  int measured = 0, probed = 0;

  Measure Asked() {
    return [this](const MeasureTask& task) {
      fails();
      Profile profile;
      if (task.only_known && !knows_layers) return profile;
      profile.layers.assign(task.job->layers.size(), {1e-3, 1e-3, 1e-3});
      if (task.only_known) profile.layers[0] = {1, 1, 1};
      if (task.only_known) return profile;
      const bool is_own = !task.job->loss.type.empty();  // probes have no loss
      ++(is_own ? measured : probed);
      return is_own ? measures(profile) : profile;
    };
  }
  Plan PlanOf(const Job& job) { return MakePlan(job, {.measure = Asked()}, nullptr); }
};

Job AutoJob() {
  ::unsetenv("STRATA_RATES");
  Job job = DeepJob(2, 4);
  job.partition.method = "auto";
  return job;
}

TEST(PartitionAuto, TakesWhatIsKnownElseMeasuresItsOwnLayers) {
  const Job job = AutoJob();
  Machine machine;
  const Plan measured = machine.PlanOf(job);
  EXPECT_EQ(measured.costs->seconds_from, SecondsFrom::kMeasured);
  EXPECT_GT(measured.bounds[1], 4);
  EXPECT_EQ(machine.measured, 1);
  machine.knows_layers = true;
  EXPECT_THAT(machine.PlanOf(job).bounds, ElementsAre(0, 1, 16));
  EXPECT_EQ(machine.measured, 1);
  EXPECT_EQ(machine.probed, 0);
  EXPECT_EQ(MakePlan(job, {}, nullptr).costs->seconds_from, SecondsFrom::kStated);
}

TEST(PartitionAuto, ProbesTellWhatItsOwnLayersDoNot) {
  const Job job = AutoJob();
  Machine machine;
  machine.measures = [](Profile) -> Profile { throw WorldError("no such numbers"); };
  const Plan failed = machine.PlanOf(job);
  EXPECT_EQ(failed.costs->seconds_from, SecondsFrom::kMeasured);
  EXPECT_EQ(machine.probed, 1);
  machine.measures = [](Profile profile) {  // the time was enough for layer 3 only
    profile.is_whole = false;
    profile.layers.assign(profile.layers.size(), {});
    profile.layers[3] = {5, 6, 7};
    return profile;
  };
  const Plan some = machine.PlanOf(job);
  EXPECT_EQ(some.costs->seconds_from, SecondsFrom::kMeasured);
  EXPECT_EQ(some.costs->layers[3].input_grad.seconds, 6);
  EXPECT_EQ(some.costs->layers[2].forward.seconds, failed.costs->layers[2].forward.seconds);
}

TEST(PartitionAuto, SaysThatRanksShareCores) {
  const int cores = MachineCores();
  Job job = AutoJob();
  const auto notices = [&](int threads) {
    job.threads = threads;
    return Machine().PlanOf(job).notices;
  };
  EXPECT_THAT(notices(cores), Contains(HasSubstr("2 ranks share")));
  EXPECT_THAT(notices(cores), Contains(HasSubstr("up to 2 times what is predicted")));
  if (cores == 1) return;
  EXPECT_THAT(notices(1), Not(Contains(HasSubstr("share"))));
}

TEST(PartitionAuto, NobodyWaitsForLargeLayers) {
  const auto linear = [](int64_t in, int64_t out) {
    return MakeLayer("Linear", {in, out}, {}, {}, "net.lua:3");
  };
  Job slow = AutoJob();  // 50 GFLOP, which take a second at stated rates
  slow.layers = {linear(64, 4096), linear(4096, 4096), linear(4096, 10)};
  slow.batch.micro_batch_size = 512;
  Job large = AutoJob();  // needs 2 GiB
  large.layers = {linear(64, 64), linear(64, 4 << 20)};
  large.batch.micro_batch_size = 1;
  for (const Job& job : {slow, large}) {
    Machine machine;
    EXPECT_EQ(machine.PlanOf(job).costs->seconds_from, SecondsFrom::kMeasured);
    EXPECT_EQ(machine.measured, 0);
    EXPECT_EQ(machine.probed, 1);
  }
}

/// Knows the seconds of all layers, or of layer 3 only. Probes take a millisecond.
Measure KnowingSeconds(bool knows_all) {
  return [knows_all](const MeasureTask& task) {
    Profile profile;
    profile.layers.assign(task.job->layers.size(), {1e-3, 1e-3, 1e-3});
    if (task.job->loss.type.empty()) return profile;  // the task is that of the probes
    if (!knows_all) profile.layers.assign(profile.layers.size(), {});
    profile.layers[3] = {5, 6, 7};
    profile.is_whole = knows_all;
    return profile;
  };
}

TEST(PartitionAuto, GoesByWhatIsKnownAndElseByProbes) {
  Job job = AutoJob();
  const auto costs_with = [&](bool knows_all) {
    return MakePlan(job, {.measure = KnowingSeconds(knows_all)}, nullptr).costs;
  };
  const auto known = costs_with(true);
  EXPECT_STREQ(known->SourceText(), "measured costs");
  EXPECT_EQ(known->layers[2].forward.seconds, 1e-3);
  const auto some = costs_with(false);
  for (const auto& costs : {known, some}) {
    EXPECT_EQ(costs->layers[3].forward.seconds, 5);
    EXPECT_EQ(costs->layers[3].weight_grad.seconds, 7);
  }
  EXPECT_GT(some->layers[2].forward.seconds, 0) << "as the probes tell";
  EXPECT_GT(some->update_seconds, 0);
  ::setenv("STRATA_RATES", "stated", 1);
  EXPECT_EQ(costs_with(true)->seconds_from, SecondsFrom::kStated);
  ::unsetenv("STRATA_RATES");
}

TEST(PartitionAuto, AMachineThatCannotBeMeasuredCostsNoTraining) {
  Job job = AutoJob();
  const Plan without = MakePlan(job, {}, nullptr);
  const std::function<void()> failures[] = {[] { throw WorldError("no engine"); },
                                            [] { throw ConfigError("no such layer"); }};
  for (const auto& failure : failures) {
    Machine machine{.fails = failure};
    const Plan plan = machine.PlanOf(job);
    EXPECT_EQ(plan.costs->seconds_from, SecondsFrom::kStated);
    EXPECT_EQ(plan.bounds, without.bounds);
    EXPECT_THAT(plan.notices, testing::Contains(HasSubstr("goes by stated rates, for nothing")));
    job.partition.method = "time";
    EXPECT_THROW(machine.PlanOf(job), Error) << "what is asked for";
    job.partition.method = "auto";
  }
}

TEST(PartitionAuto, TheEnvironmentSaysStatedOrNothing) {
  const Job job = AutoJob();
  Machine machine;
  ::setenv("STRATA_RATES", "stated", 1);
  EXPECT_EQ(machine.PlanOf(job).costs->seconds_from, SecondsFrom::kStated);
  ::setenv("STRATA_RATES", "guessed", 1);
  EXPECT_THAT(ConfigErrorOf([&] { machine.PlanOf(job); }),
              HasSubstr("STRATA_RATES in the environment: expected stated, or nothing"));
  ::unsetenv("STRATA_RATES");
}

TEST(PartitionAuto, ALayerThatFailsOnZerosCostsNoTraining) {
  struct Failing : AnsweringScript {
    std::optional<LayerMemory> MeasureMemory(const LayerSpec&, const TensorSpecs&) override {
      throw ConfigError("net.lua:9: zeros");
    }
  } script;
  Job job = DeepJob(2, 4);
  job.layers[3] = LayerSpec();
  job.layers[3].type = "function";
  job.layers[3].scripted = true;
  job.layers[3].forward = {1, "net.lua:9", "f"};
  job.partition.method = "auto";
  const Plan plan = MakePlan(job, {}, &script);
  EXPECT_EQ(plan.costs, nullptr);
  EXPECT_THAT(plan.notices, testing::Contains(HasSubstr("is not known: net.lua:9: zeros")));
  job.partition.method = "memory";
  EXPECT_THAT(ConfigErrorOf([&] { MakePlan(job, {}, &script); }), HasSubstr("zeros"));
}

TEST(PartitionAuto, GoesByParametersWhereNoShapeIsKnown) {
  Job job = DeepJob(2, 4);
  job.partition.method = "auto";
  job.input.reset();
  const Plan plan = MakePlan(job, {}, nullptr);
  job.partition.method = "parameters";
  EXPECT_EQ(plan.bounds, MakePlan(job, {}, nullptr).bounds);
  EXPECT_EQ(plan.costs, nullptr);
}

TEST(PartitionByMemory, TakesWhatEachStageKeepsAlive) {
  Job job = DeepJob(4, 4);
  job.partition.method = "memory";
  const Plan plan = MakePlan(job, {}, nullptr);
  // The first stage has four micro-batches alive, the last stage one.
  EXPECT_LT(plan.bounds[1], 4);
  EXPECT_GT(16 - plan.bounds[3], 4);
}

TEST(MemoryLimit, MovesACutByTime) {
  Job job = DeepJob(2, 4);
  job.partition.method = "time";
  std::vector<double> weights(16, 0.1);
  weights[15] = 100;
  const PlanOptions options = {.measure = Measuring(weights)};
  EXPECT_THAT(MakePlan(job, options, nullptr).bounds, ElementsAre(0, 15, 16));
  job.partition.method = "memory";
  const std::vector<int> least = MakePlan(job, options, nullptr).bounds;
  job.partition.method = "time";
  job.memory = 700'000;
  const std::vector<int> limited = MakePlan(job, options, nullptr).bounds;
  EXPECT_LT(limited[1], 15);
  EXPECT_GE(limited[1], least[1]);
  job.memory = 100'000;
  EXPECT_THAT(ConfigErrorOf([&] { MakePlan(job, options, nullptr); }), HasSubstr("the least is"));
}

}  // namespace
}  // namespace strata
