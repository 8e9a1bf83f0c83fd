#include "engine/search/plan_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>

#include "engine/base/testing.h"
#include "engine/plan/cut/all_cuts.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/stage_map.h"
#include "engine/search/bounds.h"
#include "engine/search/cuts.h"
#include "engine/search/search_testing.h"

namespace strata::search {
namespace {

using testing::AnyLayers;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MakeDevices;
using testing::Numbers;
using testing::NumbersNetwork;
using testing::StepOf;

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 + 1e-9;

/// A random candidate that can run, with random cuts.
Candidate AnyChoice(int layers) {
  Candidate candidate;
  const std::vector<std::string> names = schedule::GeneratorNames();
  while (true) {
    candidate.schedule = *rc::gen::elementOf(names);
    candidate.stages_per_rank = *rc::gen::inRange(1, 4);
    candidate.pipe = *rc::gen::inRange(1, 6);
    candidate.micro_batches = *rc::gen::inRange(1, 14);
    const bool trains = candidate.schedule != "auto" && candidate.schedule != "inference";
    const schedule::Sizes sizes{candidate.pipe, candidate.stages_per_rank,
                                static_cast<int>(candidate.micro_batches)};
    if (trains && candidate.stages() <= layers && schedule::Fits(candidate.schedule, sizes)) break;
  }
  candidate.data = *rc::gen::element(1, 2, 4);
  candidate.model = *rc::gen::element(1, 2);
  candidate.zero = *rc::gen::inRange(0, 3);
  candidate.recompute = *rc::gen::element(Recompute::kNone, Recompute::kLayers, Recompute::kStages);
  std::vector<int> inner(static_cast<size_t>(layers) - 1);
  for (size_t i = 0; i < inner.size(); ++i) inner[i] = static_cast<int>(i) + 1;
  while (static_cast<int>(inner.size()) > candidate.stages() - 1) {
    inner.erase(inner.begin() + *rc::gen::inRange<int>(0, static_cast<int>(inner.size())));
  }
  candidate.bounds = {0};
  candidate.bounds.insert(candidate.bounds.end(), inner.begin(), inner.end());
  candidate.bounds.push_back(layers);
  return candidate;
}

Cluster AnyCluster() {
  Cluster cluster = MakeDevices(*rc::gen::element(1, 4, 40), 8, 1e9);
  cluster.within = {static_cast<double>(*rc::gen::inRange(0, 3)),
                    static_cast<double>(*rc::gen::inRange(1, 100))};
  cluster.between = {static_cast<double>(*rc::gen::inRange(0, 9)),
                     static_cast<double>(*rc::gen::inRange(1, 50))};
  return cluster;
}

/// Half of the time, gives the cluster's first devices different speeds.
void MayDiffer(int devices, Cluster& cluster) {
  if (*rc::gen::arbitrary<bool>()) return;
  for (int i = 0; i < devices; ++i) {
    cluster.abilities.push_back({.speed = *rc::gen::element(0.25, 0.5, 1.0, 2.0),
                                 .memory = static_cast<int64_t>(cluster.memory())});
  }
}

Training AnyTraining() {
  return {.state_bytes = static_cast<double>(*rc::gen::inRange(0, 9)),
          .update_seconds = 0.25 * *rc::gen::inRange(0, 3),
          .clips = *rc::gen::arbitrary<bool>()};
}

// ---- Bounds

RC_GTEST_PROP(Bounds, NoStepIsBelowThem, ()) {
  NumbersNetwork network(AnyLayers(3, 12));
  const Candidate candidate = AnyChoice(network.layers());
  Cluster cluster = AnyCluster();
  MayDiffer(candidate.ranks(), cluster);
  const Training training = AnyTraining();
  const auto table = network.Table(2, candidate.model, candidate.recompute);
  const StepEvaluation forecast = StepOf(candidate, *table, training, cluster);
  const double of_cut = CutStep(candidate, *table, training, cluster).AtLeast(candidate.bounds);
  const double of_all = StepAtLeast(candidate, *table, training, cluster);
  RC_ASSERT(of_cut <= forecast.step * kRounding);
  RC_ASSERT(of_all <= forecast.step * kRounding);
}

RC_GTEST_PROP(Bounds, NoRankHoldsLess, ()) {
  NumbersNetwork network(AnyLayers(3, 12));
  const Candidate candidate = AnyChoice(network.layers());
  const Training training = AnyTraining();
  const auto table = network.Table(2, candidate.model, candidate.recompute);
  const StepEvaluation forecast = StepOf(candidate, *table, training, MakeDevices(1, 8, 1e9));
  RC_ASSERT(MemoryAtLeast(candidate, *table, training) <=
            static_cast<double>(forecast.memory) * kRounding);
  const auto bytes = CutMemoryAtLeast(candidate, *table, training, LiveAtLeast(candidate));
  for (size_t r = 0; r < bytes.size(); ++r) {
    RC_ASSERT(bytes[r] <= static_cast<double>(forecast.ranks[r].memory.total()) * kRounding);
  }
}

// ---- Predictions

TEST(ClusterForecast, AStepByHand) {
  // Two layers of 1 + 1 + 1 s on two ranks; 1f1b with two micro-batches; the first layer computes
  // no gradient of its input. A message has 5 bytes at 1 byte per second, and 2 seconds of latency.
  NumbersNetwork network(
      {{.parameters = 10, .kept = 7, .output = 5}, {.parameters = 10, .kept = 3}});
  Cluster cluster = MakeDevices(1, 4, 1e9);
  cluster.within = {2, 1};
  const Training training{.state_bytes = 8, .update_seconds = 0.5};
  Candidate candidate{{.pipe = 2, .data = 2, .micro_batches = 2, .bounds = {0, 1, 2}}};
  const auto table = network.Table(1, 1, Recompute::kNone);
  const StepEvaluation forecast = StepOf(candidate, *table, training, cluster);
  // Rank 0 runs F0 from 0 to 1; it arrives at 8. Rank 1 runs F B from 8 to 11. F1 leaves at 6 and
  // arrives at 13; F B runs from 13 to 16. The gradients leave at 11 and 16 and arrive at 18 and
  // 23; B (only W) runs from 18 to 19 and from 23 to 24.
  EXPECT_DOUBLE_EQ(forecast.pipeline, 24);
  EXPECT_DOUBLE_EQ(forecast.bubble, 1 - (4 + 6) / 48.0);
  // All-reduce of 40 bytes over 2 ranks by doubling: 2 + 40.
  EXPECT_DOUBLE_EQ(forecast.ranks[0].reduce, 42);
  EXPECT_DOUBLE_EQ(forecast.ranks[0].end, 24 + 42 + 5);
  EXPECT_DOUBLE_EQ(forecast.ranks[1].end, 16 + 42 + 5);
  EXPECT_DOUBLE_EQ(forecast.step, 71);
  // Two activations, two receive buffers for gradients, and two outputs being sent.
  EXPECT_EQ(forecast.ranks[0].memory.total(), 40 + 40 + 80 + 2 * 7 + 2 * 5 + 2 * 5);
  EXPECT_EQ(forecast.ranks[1].memory.total(), 40 + 40 + 80 + 3);
  EXPECT_DOUBLE_EQ(forecast.ranks[0].sent_messages, 10);
  EXPECT_DOUBLE_EQ(forecast.ranks[0].sent_replicas, 40);
  candidate.zero = 1;
  const StepEvaluation sharded = StepOf(candidate, *table, training, cluster);
  EXPECT_DOUBLE_EQ(sharded.ranks[0].reduce, 2 * (2 + 20));
  EXPECT_DOUBLE_EQ(sharded.ranks[0].update, 2.5);
  EXPECT_EQ(sharded.ranks[0].memory.total(), 40 + 40 + 40 + 2 * 7 + 2 * 5 + 2 * 5);
  Training clips = training;
  clips.clips = true;
  EXPECT_DOUBLE_EQ(StepOf(candidate, *table, clips, cluster).ranks[1].end,
                   24 + 44 + 2 * (2 + 8) + 2.5)
      << "rank 1 waits for the norm";
}

TEST(ClusterForecast, OwnersShareAllOfTheOptimizersState) {
  StageCost stage;
  stage.parameters = 100;
  stage.weight_bytes = stage.gradient_bytes = 400;
  stage.extra_state_bytes = 80;
  Candidate candidate;
  candidate.data = 4;
  EXPECT_EQ(ModelBytes(candidate, stage, {.state_bytes = 8}), 800 + 880);
  candidate.zero = 1;
  EXPECT_EQ(ModelBytes(candidate, stage, {.state_bytes = 8}), 800 + 220);
  stage.extra_state_bytes = -800;
  EXPECT_EQ(ModelBytes(candidate, stage, {.state_bytes = 8}), 800);
}

TEST(ClusterForecast, ASlowRankHoldsUpItsColumnAndAllReplicasAtTheEnd) {
  NumbersNetwork network(std::vector<Numbers>(4, {.parameters = 1, .output = 1}));
  Cluster cluster = MakeDevices(4, 2, 1e9);
  cluster.within = {0, 10};
  cluster.between = {0, 10};
  const Candidate candidate{
      {.pipe = 2, .data = 2, .model = 2, .micro_batches = 6, .bounds = {0, 2, 4}}};
  const auto table = network.Table(1, 2, Recompute::kNone);
  const auto step = [&](const Slowness& slowness) {
    return StepOf(candidate, *table, {}, cluster, slowness).step;
  };
  const double usual = step({});
  EXPECT_EQ(step({.ranks = {{5, 1.0}}}), usual);
  const double slow = step({.ranks = {{5, 2.0}}});
  EXPECT_GT(slow, 1.5 * usual);
  for (int rank : {4, 6, 7}) EXPECT_EQ(step({.ranks = {{rank, 2.0}}}), slow) << "same stage";
  EXPECT_GE(step({.ranks = {{4, 2.0}, {5, 2.0}}}), slow);
  EXPECT_GE(step({.ranks = {{0, 2.0}, {5, 2.0}}}), slow);
  // Ranks 0 and 4 pass activations, ranks 0 and 2 are replicas, ranks 0 and 7 do not communicate.
  EXPECT_GT(step({.links = {{{0, 4}, 20.0}}}), usual);
  EXPECT_GT(step({.links = {{{0, 2}, 20.0}}}), usual);
  EXPECT_EQ(step({.links = {{{0, 7}, 20.0}}}), usual);
  EXPECT_GE(step({.nodes = {{0, 20.0}}}), step({.links = {{{0, 4}, 20.0}}}));
}

// ---- Search against brute force

/// The shortest step of all cuts, schedules and micro-batches, simulated without the planner.
double BruteForce(const std::vector<Numbers>& layers, int ranks, int stages_per_rank, int64_t batch,
                  const Cluster& cluster) {
  double least = kNever;
  for (int64_t size = 1; size <= batch; ++size) {
    if (batch % size != 0) continue;
    const schedule::Sizes sizes{ranks, stages_per_rank, static_cast<int>(batch / size)};
    for (const std::string& name : schedule::GeneratorNames()) {
      if (name == "auto" || name == "inference" || !schedule::Fits(name, sizes)) continue;
      const schedule::Program program = schedule::Generate(name, sizes);
      const int count = static_cast<int>(layers.size());
      partition::ForEachCut(count, program.stages(), [&](const std::vector<int>& bounds) {
        schedule::Costs costs{.forward = {}, .input_grad = {}, .weight_grad = {}};
        costs.transfer.clear();
        costs.latency.clear();
        for (int s = 0; s < program.stages(); ++s) {
          double forward = 0, input_grad = 0, weight_grad = 0, output = 0;
          for (int i = bounds[s]; i < bounds[s + 1]; ++i) {
            const Numbers& layer = layers[i];
            forward += layer.forward * static_cast<double>(size) + layer.launch;
            if (i > 0) input_grad += layer.input_grad * static_cast<double>(size);
            weight_grad += layer.weight_grad * static_cast<double>(size);
            output = layer.output * static_cast<double>(size);
          }
          const int rank = program.stage_ranks[s];
          const double speed = cluster.abilities.empty() ? 1 : cluster.abilities[rank].speed;
          costs.forward.push_back(forward / speed);
          costs.input_grad.push_back(input_grad / speed);
          costs.weight_grad.push_back(weight_grad / speed);
          const int next = s + 1 < program.stages() ? program.stage_ranks[s + 1] : rank;
          const LinkRates link = next == rank ? LinkRates() : cluster.LinkOf(rank, next);
          costs.transfer.push_back(next == rank ? 0 : output / link.bandwidth);
          costs.latency.push_back(link.latency);
        }
        least = std::min(least, schedule::Simulate(program, costs).makespan);
      });
    }
  }
  return least;
}

RC_GTEST_PROP(Search, IsNeverWorseThanBruteForce, ()) {
  const std::vector<Numbers> layers = AnyLayers(2, 7);
  NumbersNetwork network(layers);
  Cluster cluster = MakeDevices(1, *rc::gen::inRange(1, 5), 1e9);
  cluster.within = {static_cast<double>(*rc::gen::inRange(0, 5)), 4};
  if (cluster.devices_per_node > 1 && *rc::gen::arbitrary<bool>()) {
    std::vector<LinkRates> pairs;  // each pair has its own link
    const auto ranks = static_cast<size_t>(cluster.devices_per_node);
    for (size_t i = 0; i < ranks * (ranks - 1) / 2; ++i) {
      pairs.push_back({static_cast<double>(*rc::gen::inRange(0, 9)),
                       static_cast<double>(*rc::gen::element(1, 2, 4, 16))});
    }
    cluster.links = std::make_shared<const LinkTable>("gloo", std::vector<std::string>(ranks, "a"),
                                                      std::move(pairs));
  }
  MayDiffer(cluster.devices(), cluster);
  Space space{.batch = *rc::gen::element<int64_t>(1, 2, 4, 6)};
  space.data = space.model = {1};
  const FoundPlans result = SearchPlans(network, cluster, space, 1);
  double least = kNever;
  for (int v = 1; v <= 3; ++v) {
    for (int ranks = 1; ranks <= cluster.devices_per_node; ++ranks) {
      if (ranks * v > network.layers()) continue;
      least = std::min(least, BruteForce(layers, ranks, v, space.batch, cluster));
    }
  }
  RC_ASSERT(result.best.size() == 1u);
  RC_ASSERT(result.best[0].forecast.step <= least * kRounding);
  RC_ASSERT(result.best[0].forecast.step >= least / kRounding);
}

// ---- Properties

double BestStep(NumbersNetwork& network, const Cluster& cluster, const Space& space) {
  const FoundPlans result = SearchPlans(network, cluster, space, 1);
  return result.best.empty() ? kNever : result.best[0].forecast.step;
}

RC_GTEST_PROP(Search, MoreOfAnythingIsNeverSlower, ()) {
  NumbersNetwork network(AnyLayers(2, 8), AnyTraining());
  const Space space{.batch = *rc::gen::element<int64_t>(2, 4, 8)};
  Cluster cluster = AnyCluster();
  cluster.nodes = 1;
  cluster.devices_per_node = 4;
  cluster.device.memory = *rc::gen::inRange(50, 2000);
  const double step = BestStep(network, cluster, space);
  Cluster larger = cluster;
  larger.device.memory *= 2;
  RC_ASSERT(BestStep(network, larger, space) <= step * kRounding);
  Cluster faster = cluster;
  faster.within.bandwidth *= 2;
  RC_ASSERT(BestStep(network, faster, space) <= step * kRounding);
  Cluster nearer = cluster;
  nearer.within.latency /= 2;
  RC_ASSERT(BestStep(network, nearer, space) <= step * kRounding);
  Space pinned = space;
  pinned.zero = {0};
  RC_ASSERT(BestStep(network, cluster, pinned) >= step / kRounding);
}

RC_GTEST_PROP(Search, EachRankKeepsToItsMemory, ()) {
  NumbersNetwork network(AnyLayers(4, 16), AnyTraining());
  Cluster cluster = MakeDevices(1, 4, *rc::gen::inRange(50, 2000));
  MayDiffer(4, cluster);
  for (RankAbility& device : cluster.abilities) device.memory = *rc::gen::inRange(50, 2000);
  const FoundPlans result = SearchPlans(network, cluster, {.batch = 4});
  for (const auto& [candidate, forecast] : result.best) {
    const std::vector<double> memories = MemoriesOf(candidate, cluster);
    for (size_t r = 0; r < forecast.ranks.size(); ++r) {
      const double limit = memories.empty() ? cluster.memory() : memories[r];
      RC_ASSERT(static_cast<double>(forecast.ranks[r].memory.total()) <= limit);
    }
  }
  if (cluster.abilities.empty()) return;
  Cluster least = cluster;  // all devices with the memory of the smallest
  for (RankAbility& device : least.abilities) {
    device.memory = std::ranges::min(cluster.abilities, {}, &RankAbility::memory).memory;
  }
  RC_ASSERT(BestStep(network, cluster, {.batch = 4}) <=
            BestStep(network, least, {.batch = 4}) * kRounding);
}

RC_GTEST_PROP(Search, WhatItFindsFitsAndIsInOrder, ()) {
  const bool tries_all_cuts = *rc::gen::arbitrary<bool>();
  NumbersNetwork network(tries_all_cuts ? AnyLayers(2, 6) : AnyLayers(15, 16), AnyTraining());
  Cluster cluster = AnyCluster();
  cluster.nodes = *rc::gen::inRange(1, 3);
  cluster.devices_per_node = 4;
  cluster.device.memory = *rc::gen::inRange(50, 2000);
  const Space space{.batch = *rc::gen::element<int64_t>(4, 6)};
  const FoundPlans result = SearchPlans(network, cluster, space);
  RC_ASSERT(result.best.size() <= 5u);
  RC_ASSERT(!result.best.empty() || result.least_memory > cluster.memory());
  double last = 0;
  for (const FoundPlan& found : result.best) {
    const Candidate& candidate = found.candidate;
    RC_ASSERT(candidate.ranks() <= cluster.devices());
    RC_ASSERT(candidate.data * candidate.micro_batches * candidate.micro_batch_size == space.batch);
    const auto table =
        network.Table(candidate.micro_batch_size, candidate.model, candidate.recompute);
    const StepEvaluation again = StepOf(candidate, *table, network.training(), cluster);
    RC_ASSERT(again.step == found.forecast.step);
    RC_ASSERT(again.memory <= cluster.memory());
    RC_ASSERT(last <= again.step * kRounding);
    last = again.step;
  }
}

TEST(Search, PinsHold) {
  NumbersNetwork network(std::vector<Numbers>(6));
  const Cluster cluster = MakeDevices(1, 4, 1e9);
  Space space{.batch = 8};
  space.pipe = {2};
  space.data = {2};
  space.schedules = {"gpipe"};
  space.micro_batches = {4};
  space.recompute = {Recompute::kStages};
  space.bounds = {0, 1, 6};
  const FoundPlans result = SearchPlans(network, cluster, space);
  ASSERT_EQ(result.best.size(), 1u);
  const Candidate& candidate = result.best[0].candidate;
  EXPECT_EQ(candidate.pipe, 2);
  EXPECT_EQ(candidate.data, 2);
  EXPECT_EQ(candidate.schedule, "gpipe");
  EXPECT_EQ(candidate.micro_batches, 4);
  EXPECT_EQ(candidate.micro_batch_size, 1);
  EXPECT_EQ(candidate.recompute, Recompute::kStages);
  EXPECT_THAT(candidate.bounds, ElementsAre(0, 1, 6));
}

TEST(Search, TriesEveryScheduleThatTrains) {
  NumbersNetwork network(std::vector<Numbers>(4));
  Space space{.batch = 8};
  space.pipe = {2};
  space.data = {1};
  for (const std::string& name : schedule::GeneratorNames()) {
    if (name == "auto" || name == "inference") continue;
    space.schedules = {name};
    const FoundPlans result = SearchPlans(network, MakeDevices(1, 2, 1e9), space);
    ASSERT_FALSE(result.best.empty()) << name;
    EXPECT_EQ(result.best[0].candidate.schedule, name);
  }
}

TEST(Search, SaysWhatMemoryWouldBeNeededAtLeast) {
  NumbersNetwork network(std::vector<Numbers>(4, {.parameters = 100}));
  const FoundPlans result = SearchPlans(network, MakeDevices(1, 2, 100), {.batch = 2});
  EXPECT_TRUE(result.best.empty());
  EXPECT_GE(result.least_memory, 2 * 4 * 100);
  EXPECT_LE(result.least_memory, 4 * 8 * 100);
}

TEST(Search, RefusesABatchOfNothing) {
  NumbersNetwork network(std::vector<Numbers>(2));
  EXPECT_THAT(ConfigErrorOf([&] { SearchPlans(network, MakeDevices(1, 1, 1e9), {.batch = 0}); }),
              HasSubstr("at least one sample"));
}

/// 96 equal blocks between an embedding and a head, with GPT-3's proportions.
std::vector<Numbers> Transformer() {
  const Numbers block{.forward = 1.9e-2,
                      .input_grad = 1.9e-2,
                      .weight_grad = 1.9e-2,
                      .launch = 1e-4,
                      .parameters = 1.8e9,
                      .kept = 3.4e9,
                      .output = 1e8};
  std::vector<Numbers> layers(98, block);
  layers.front() = {.forward = 1e-4,
                    .input_grad = 0,
                    .weight_grad = 1e-4,
                    .parameters = 6e8,
                    .kept = 1e8,
                    .output = 1e8};
  layers.back() = {.forward = 1e-2,
                   .input_grad = 1e-2,
                   .weight_grad = 1e-2,
                   .parameters = 6e8,
                   .kept = 1e9,
                   .output = 4e8};
  return layers;
}

TEST(Search, FindsALargeTransformersPlanOn1024Devices) {
  NumbersNetwork network(Transformer(), {.state_bytes = 8, .update_seconds = 1e-11});
  const Cluster cluster = MakeCluster({.cluster = "8xH100", .gpus = 1024});
  const FoundPlans result = SearchPlans(network, cluster, {.batch = 1536});
  ASSERT_EQ(result.best.size(), 5u);
  const FoundPlan& best = result.best[0];
  // No plan can be faster than all devices working all the time, and the best comes close to that.
  double work = 0;
  for (const Numbers& layer : Transformer()) {
    work += layer.forward + layer.input_grad + layer.weight_grad;
  }
  EXPECT_GE(best.forecast.step, 1536 * work / 1024 * 0.99);
  EXPECT_LE(best.forecast.step, 1536 * work / 1024 * 1.5);
  EXPECT_LE(best.forecast.memory, cluster.memory());
  // The search simulates only a small part of the candidates.
  EXPECT_GT(result.considered, 1000);
  EXPECT_LT(result.simulated, 2000);
  RecordProperty("considered", static_cast<int>(result.considered));
  RecordProperty("simulated", static_cast<int>(result.simulated));
}

/// A search that is cut short gives the best so far, and its bound on what it missed is none that a
/// longer search breaks.
TEST(Search, ThatIsCutShortSaysWhatItMayHaveMissed) {
  NumbersNetwork network(Transformer(), {.state_bytes = 8, .update_seconds = 1e-11});
  const Cluster cluster = MakeCluster({.cluster = "8xH100", .gpus = 1024});
  const Space space = {.batch = 1536};
  const double best = SearchPlans(network, cluster, space).best.at(0).forecast.step;
  bool was_cut_short = false;
  for (const int64_t actions : {200'000, 2'000'000, 20'000'000}) {
    int64_t steps = 0;
    SearchLimits limits = {.actions = actions};
    limits.progress = [&](const FoundPlans& so_far) { steps = so_far.simulated; };
    const FoundPlans found = SearchPlans(network, cluster, space, 5, limits);
    EXPECT_EQ(steps, found.simulated);
    was_cut_short |= found.is_cut_short;
    EXPECT_TRUE(found.is_cut_short || found.missed == 0) << found.missed;
    if (found.best.empty()) continue;
    EXPECT_GE(best, (1 - found.missed) * found.best[0].forecast.step / kRounding) << actions;
    EXPECT_FALSE(found.is_late);
  }
  EXPECT_TRUE(was_cut_short);
}

}  // namespace
}  // namespace strata::search
