#include "engine/search/job_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/testing.h"
#include "engine/forecast/planned_program.h"
#include "engine/layers/layer_types.h"
#include "engine/search/cluster/job_network.h"
#include "engine/search/cluster/simulated_run.h"
#include "engine/search/plan_job.h"

namespace strata::search {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A job of Linear layers of one width, each followed by an activation.
Job Wide(int layers, int width) {
  Job job;
  job.name = "wide";
  job.input = TensorSpec{{width}, DType::kFloat32};
  for (int i = 0; i < layers; ++i) {
    job.layers.push_back(MakeLayer("Linear", {width, width}, {}, {}, "net.lua:3"));
    job.layers.push_back(MakeLayer("ReLU", {}, {}, {}, "net.lua:4"));
  }
  job.batch = {.size = 0, .micro_batches = 8, .micro_batch_size = 4};
  job.optimizer.type = "sgd";
  job.optimizer.options = Value::MakeMap({{"lr", 0.1}, {"momentum", 0.9}});
  return job;
}

ClusterRequest Devices(int gpus) { return {.cluster = "8xA100-40", .gpus = gpus}; }

TEST(JobNetwork, HasTheCostsOfTheJobsOwnPlan) {
  const Job job = Wide(4, 64);
  JobCosts costs(job, nullptr);
  const Cluster cluster = MakeCluster(Devices(4));
  JobNetwork network(costs, cluster);
  EXPECT_EQ(network.layers(), 8);
  EXPECT_EQ(network.training().state_bytes, 4);
  EXPECT_GT(network.training().update_seconds, 0);
  const auto table = network.Table(4, 1, Recompute::kNone);
  const StageCost& first = table->Of(0, 2);
  EXPECT_EQ(first.parameters, 64 * 64 + 64);
  EXPECT_EQ(first.output_bytes, 4 * 64 * 4);
  EXPECT_EQ(first.input_grad.seconds,
            table->Of(2, 4).input_grad.seconds - table->Of(2, 3).input_grad.seconds)
      << "the first layer gives no gradient of its input";
  EXPECT_EQ(first.recompute.seconds, 0);
  const auto again = network.Table(4, 1, Recompute::kStages);
  EXPECT_EQ(again->Of(0, 2).recompute.seconds, first.forward.seconds);
  EXPECT_LT(again->Of(2, 6).kept_bytes, table->Of(2, 6).kept_bytes);
  EXPECT_EQ(network.Table(4, 2, Recompute::kNone), nullptr) << "nothing is split";
  EXPECT_THAT(costs.refusals(), ::testing::ElementsAre(HasSubstr("model = 2 is left out")));
}

TEST(JobNetwork, HalfPrecisionHasItsOwnRate) {
  const Job job = Wide(4, 64);
  Job half_job = job;
  half_job.precision = {.name = "bf16", .compute = DType::kBFloat16};
  Cluster cluster = MakeCluster(Devices(4));
  cluster.device.launch = 0;
  cluster.device.memory_bandwidth = 1e18;
  cluster.device.flops = {{"float32", 1e12}, {"bfloat16", 4e12}};
  JobCosts whole(job, nullptr), half(half_job, nullptr);
  const auto seconds = [&](JobCosts& costs) {
    JobNetwork network(costs, cluster);
    return network.Table(4, 1, Recompute::kNone)->Of(0, 2).forward.seconds;
  };
  EXPECT_NEAR(seconds(whole) / seconds(half), 4, 0.1);
}

TEST(SetAbilities, GivesSpeedsByTheJobsLayersAndItsRanks) {
  Job job = Wide(4, 512);
  JobCosts costs(job, nullptr);
  Cluster cluster = MakeCluster({.cluster = "8xA100-80+8xV100-32"});
  SetAbilities(costs, cluster);
  ASSERT_EQ(cluster.abilities.size(), 16U);
  EXPECT_EQ(cluster.abilities[7], (RankAbility{1, static_cast<int64_t>(cluster.memory())}));
  const RankAbility& last = cluster.abilities[15];
  EXPECT_LT(last.speed, 1);
  EXPECT_GT(last.speed, 0.4) << "900 against 2,039 GB/s, and 15.7 against 19.5 TFLOP/s";
  EXPECT_LT(last.memory, int64_t{32} << 30);
  EXPECT_EQ(HostsOf(cluster)[15].name, "node1");
  job.ranks.rules = {{.who = "node1", .memory = 1 << 30}, {.who = "0", .speed = 0.5}};
  cluster = MakeCluster(Devices(16));
  SetAbilities(costs, cluster);
  EXPECT_EQ(cluster.abilities[0].speed, 0.5);
  EXPECT_EQ(cluster.abilities[8], (RankAbility{1, 1 << 30}));
  job.ranks.rules = {{.who = "node2", .speed = 2}};
  EXPECT_THAT(ConfigErrorOf([&] { SetAbilities(costs, cluster); }),
              HasSubstr("no host's name fits \"node2\"; did you mean"));
}

/// The planner gives the faster half of a cluster more layers than the slower one, and its own
/// simulation of that plan agrees.
TEST(SearchFor, MixedDevicesGetLayersByTheirSpeed) {
  Job job = Wide(12, 1024);
  job.ranks.rules = {{.who = "2-3", .speed = 0.5}};
  const Value given = Value::MakeMap({{"parallel", Value::MakeMap({{"pipe", 4}, {"data", 1}})}});
  job.parallel = {4, 1, 1};
  const JobSearch search = SearchFor(job, given, Devices(4), 1, nullptr, {});
  const Candidate& best = search.result.best.front().candidate;
  ASSERT_EQ(best.pipe, 4);
  std::vector<int> layers(4);
  const std::vector<int> ranks = schedule::StageMap(best.schedule, best.pipe, best.stages_per_rank);
  for (size_t s = 0; s < ranks.size(); ++s) {
    layers[ranks[s]] += best.bounds[s + 1] - best.bounds[s];
  }
  EXPECT_GE(layers[0] + layers[1], layers[2] + layers[3] + 6);
  EXPECT_THAT(SearchText(search), HasSubstr("  ranks           = {{\"0-1\", speed=1, memory="));
  Job equal = job;
  equal.ranks = {};
  const JobSearch other = SearchFor(equal, given, Devices(4), 1, nullptr, {});
  EXPECT_LT(other.result.best.front().forecast.step, search.result.best.front().forecast.step);
}

TEST(JobNetwork, NeedsShapes) {
  Job job = Wide(2, 8);
  job.input.reset();
  EXPECT_THAT(ConfigErrorOf([&] { JobCosts(job, nullptr); }), HasSubstr("needs the shapes"));
}

/// Requires that the keys of every plan that was found make the plan that was predicted.
void ExpectKeysMakePlans(const JobSearch& search, const Job& job) {
  for (const FoundPlan& found : search.result.best) {
    Job planned = job;
    const Candidate& candidate = found.candidate;
    planned.parallel = {candidate.pipe, candidate.data, candidate.model};
    planned.schedule.name = candidate.schedule;
    planned.stages_per_rank = candidate.stages_per_rank;
    planned.batch = {0, candidate.micro_batches, candidate.micro_batch_size};
    planned.partition.method = "cuts";
    planned.partition.bounds = candidate.bounds;
    planned.zero = candidate.zero;
    if (candidate.recompute == Recompute::kStages) {
      planned.recompute.method = RecomputeSpec::Method::kStages;
    }
    if (candidate.recompute == Recompute::kLayers) {
      planned.recompute.method = RecomputeSpec::Method::kEvery;
      planned.recompute.every = 1;
    }
    if (candidate.recompute == Recompute::kAuto) {
      planned.recompute.method = RecomputeSpec::Method::kAuto;
      planned.memory = candidate.memory;
    }
    const Plan plan = PlanJob(planned, {.gpus = 8}, nullptr);
    const auto micro_batches = static_cast<int>(candidate.micro_batches);
    const SimulatedRun run =
        SimulateRun(planned, plan, TrainingProgram(planned, plan, micro_batches, nullptr),
                    search.cluster, {}, {}, nullptr);
    EXPECT_DOUBLE_EQ(run.usual.step, found.forecast.step);
    EXPECT_DOUBLE_EQ(run.usual.memory, found.forecast.memory);
    EXPECT_LE(run.usual.memory, search.cluster.memory());
  }
}

TEST(SearchFor, ItsKeysMakeThePlanThatItPredicts) {
  const Job job = Wide(6, 4096);
  const JobSearch search = SearchFor(job, {}, Devices(8), 5, nullptr);
  EXPECT_EQ(search.batch, 32);
  ASSERT_FALSE(search.result.best.empty());
  ExpectKeysMakePlans(search, job);
}

TEST(SearchFor, ChoosesTheLayersOfPlansThatRecompute) {
  Job job = Wide(12, 1024);
  job.batch = {.size = 0, .micro_batches = 8, .micro_batch_size = 1 << 14};
  job.parallel = {0, 1, 1};
  Value given = Value::MakeMap({{"parallel", Value::MakeMap({{"data", 1}, {"model", 1}})}});
  given.Set("batch", Value::MakeMap({{"micro_batches", 8}, {"micro_batch_size", 1 << 14}}));
  ClusterRequest request = Devices(4);
  request.memory = "2600MB";
  const JobSearch search = SearchFor(job, given, request, 5, nullptr);
  const FoundPlan& best = search.result.best.front();
  ASSERT_EQ(best.candidate.recompute, Recompute::kAuto) << SearchText(search);
  ExpectKeysMakePlans(search, job);
  EXPECT_EQ(KeysOf(best.candidate)["memory"], Value(best.candidate.memory));

  job.recompute = {.method = RecomputeSpec::Method::kStages};
  given.Set("recompute", true);
  const JobSearch held = SearchFor(job, given, request, 5, nullptr);
  EXPECT_EQ(held.result.best.front().candidate.recompute, Recompute::kStages);
  EXPECT_GT(held.result.best.front().forecast.step, best.forecast.step);
}

TEST(SearchFor, HoldsWhatIsGiven) {
  Job job = Wide(6, 512);
  job.parallel.pipe = 3;
  job.schedule.name = "gpipe";
  Value given;
  given.SetPath("parallel.pipe", 3);
  given.Set("schedule", "gpipe");
  const JobSearch search = SearchFor(job, given, Devices(8), 5, nullptr);
  for (const FoundPlan& found : search.result.best) {
    EXPECT_EQ(found.candidate.pipe, 3);
    EXPECT_EQ(found.candidate.schedule, "gpipe");
  }
  job.partition.method = "parameters";
  EXPECT_THAT(ConfigErrorOf([&] {
                SearchFor(job, Value().Set("partition", "parameters"), Devices(8), 5, nullptr);
              }),
              HasSubstr("finds the cuts itself"));
  job.schedule.name = "auto";
  EXPECT_FALSE(SearchFor(job, given, Devices(8), 5, nullptr).result.best.empty());
}

TEST(SearchFor, RefusesCutsThatAreNone) {
  Job job = Wide(2, 64);  // four layers
  job.partition.method = "cuts";
  const Value given = Value().Set("partition", "cuts");
  const auto error = [&](std::vector<int> bounds) {
    job.partition.bounds = std::move(bounds);
    return ConfigErrorOf([&] { SearchFor(job, given, Devices(2), 5, nullptr); });
  };
  EXPECT_THAT(error({0, 5}), HasSubstr("the last is 5, not 4"));
  EXPECT_THAT(error({0, 1, 9}), HasSubstr("the last is 9, not 4"));
  EXPECT_THAT(error({0, 1'000'000, 4}), HasSubstr("4 follows 1000000"));
  EXPECT_THAT(error({3, 1, 4}), HasSubstr("the first is 3, not 0"));
  EXPECT_THAT(error({1, 2, 4}), HasSubstr("the first is 1, not 0"));
  EXPECT_THAT(error({0, 3, 2, 4}), HasSubstr("2 follows 3"));
  EXPECT_THAT(error({0, 2, 2, 4}), HasSubstr("stage 1 would be empty"));
  EXPECT_THAT(error({4}), HasSubstr("2 bounds are needed"));
  EXPECT_THAT(error({}), HasSubstr("no method \"cuts\""));
  job.partition.bounds = {0, 3, 4};
  const JobSearch search = SearchFor(job, given, Devices(2), 5, nullptr);
  EXPECT_EQ(search.result.best.front().candidate.bounds, job.partition.bounds);
}

TEST(SearchFor, SaysWhatDoesNotFitAndWhatWouldHelp) {
  const Job job = Wide(4, 8192);
  ClusterRequest request = Devices(2);
  request.memory = "2GB";
  EXPECT_THAT(ConfigErrorOf([&] { SearchFor(job, {}, request, 5, nullptr); }),
              AllOf(HasSubstr("no plan fits 1 node of 2 x A100 40GB"),
                    HasSubstr("the smallest that was tried needs about ")));
  const JobSearch search = SearchFor(job, {}, Devices(16), 5, nullptr);
  ASSERT_EQ(search.what_ifs.size(), 3u);
  EXPECT_THAT(search.what_ifs[0].change, HasSubstr("80.0 GiB per device"));
  EXPECT_THAT(search.what_ifs[2].change, HasSubstr("between nodes"));
  for (const WhatIf& what_if : search.what_ifs) {
    EXPECT_LT(what_if.step, search.result.best[0].forecast.step) << "0: no faster";
  }
  EXPECT_THAT(SearchText(search),
              AllOf(HasSubstr("32 samples a step"), HasSubstr("what would beat the first:"),
                    HasSubstr("\n  schedule        = \"")));
  const Value record = SearchRecord(search);
  EXPECT_EQ(record["plans"].as_list().size(), search.result.best.size());
}

TEST(SearchFor, SharesItsLimitsWithTheChangesOfTheCluster) {
  const Job job = Wide(3, 512);
  const Cluster cluster = MakeCluster(Devices(8));
  JobCosts costs(job, nullptr);
  JobNetwork network(costs, cluster);
  const auto suffice = [&](int64_t actions) {
    return !SearchPlans(network, cluster, {.batch = 32}, 5, {.actions = actions}).is_cut_short;
  };
  int64_t least = 1000;
  while (!suffice(least)) least += least / 5;
  const auto is_cut_short = [&](int64_t actions) {
    return SearchFor(job, {}, Devices(8), 5, nullptr, {.actions = actions}).result.is_cut_short;
  };
  EXPECT_TRUE(is_cut_short(least));
  EXPECT_FALSE(is_cut_short(10 * (least / 7 + 1)));
}

TEST(SimulateRun, ShowsThousandsOfRanksWithWhatIsSlow) {
  Job job = Wide(16, 256);
  job.parallel = {16, 256, 1};
  const Plan plan = PlanJob(job, {.gpus = 4096}, nullptr);
  const schedule::Program program = TrainingProgram(job, plan, 8, nullptr);
  const Cluster cluster = MakeCluster(Devices(4096));
  const SimulatedRun run =
      SimulateRun(job, plan, program, cluster, {"300:2"}, {"0-256:4", "node3:2"}, nullptr);
  EXPECT_GT(run.slowed.step, run.usual.step);
  EXPECT_THAT(RunText(run),
              AllOf(HasSubstr("= 4,096 ranks on 512 nodes of 8 x A100 40GB"),
                    HasSubstr("rank 300 (pipe 1, data 44, model 0) takes 2 times as long"),
                    HasSubstr("messages between ranks 0 and 256 take 4 times as long"),
                    HasSubstr("messages between node 3 and others take 2 times as long")));
  const auto error = [&](const char* straggler, const char* link) {
    const auto list = [](const char* text) {
      return *text == '\0' ? std::vector<std::string>{} : std::vector<std::string>{text};
    };
    return ConfigErrorOf(
        [&] { SimulateRun(job, plan, program, cluster, list(straggler), list(link), nullptr); });
  };
  EXPECT_THAT(error("4096:2", ""), HasSubstr("there is no rank \"4096\"; they are 0 to 4095"));
  EXPECT_THAT(error("5", ""), HasSubstr("straggler: expected a rank"));
  EXPECT_THAT(error("5:0.5", ""), HasSubstr("a factor from 1"));
  EXPECT_THAT(error("5:nan", ""), HasSubstr("a factor from 1"));
  EXPECT_THAT(error("", "0-4000:2"), HasSubstr("ranks 0 and 4000 send each other nothing"));
  EXPECT_THAT(error("", "node512:2"), HasSubstr("there is no node512; nodes are 0 to 511"));
  EXPECT_THAT(error("", "0:2"), HasSubstr("expected two ranks"));
  const Cluster small = MakeCluster(Devices(8));
  EXPECT_THAT(ConfigErrorOf([&] { SimulateRun(job, plan, program, small, {}, {}, nullptr); }),
              HasSubstr("4,096 ranks need as many devices"));
}

}  // namespace
}  // namespace strata::search
