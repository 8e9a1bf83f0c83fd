#include "engine/cost/recompute_front.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <limits>

namespace strata {
namespace {

/// Uses small numbers, so that many ways are equally good; some layers keep nothing or take no
/// time.
LayerCost AnyLayer(int64_t input_bytes) {
  LayerCost cost;
  const auto bytes = [](int most) { return int64_t{*rc::gen::inRange(0, most)}; };
  cost.forward.seconds = *rc::gen::inRange(0, 5);
  cost.input_grad.seconds = cost.weight_grad.seconds = cost.forward.seconds;
  cost.parameters = bytes(3);
  cost.input_bytes = input_bytes;
  cost.passes_input = *rc::gen::inRange(0, 6) == 0;
  cost.output_bytes = cost.passes_input ? input_bytes : 1 + bytes(8);
  cost.keeps_input = *rc::gen::arbitrary<bool>();
  cost.keeps_output = *rc::gen::arbitrary<bool>();
  cost.kept_bytes = bytes(9);
  cost.defers_input = *rc::gen::arbitrary<bool>();
  cost.deferred_bytes = bytes(4);
  cost.forward_scratch = bytes(6);
  cost.backward_scratch = bytes(12);
  cost.runs_once = *rc::gen::inRange(0, 8) == 0;
  return cost;
}

void AddConnection(int skip, int join, ModelCosts& costs) {
  costs.connections.push_back({skip, join});
  LayerCost& layer = costs.layers[skip];
  layer.passes_input = true;
  layer.keeps_input = layer.keeps_output = false;
  costs.layers[join].input_bytes += layer.input_bytes;
}

ModelCosts AnyModel(int layers) {
  ModelCosts costs;
  int64_t bytes = 1 + *rc::gen::inRange(0, 8);
  for (int i = 0; i < layers; ++i) {
    costs.layers.push_back(AnyLayer(bytes));
    bytes = costs.layers.back().output_bytes;
  }
  const int skip = *rc::gen::inRange(0, layers), join = *rc::gen::inRange(0, layers);
  if (skip < join) AddConnection(skip, join, costs);
  costs.loss.kept_bytes = *rc::gen::inRange(0, 6);
  costs.loss.backward_scratch = *rc::gen::inRange(0, 6);
  return costs;
}

/// Every way to keep layers `begin` to `end` or put them into segments. Each entry is as long as
/// the model's list of layers.
std::vector<std::vector<int>> AllSegments(int begin, int end, const ModelCosts& costs) {
  std::vector<std::vector<int>> all = {std::vector<int>(costs.layers.size(), -1)};
  for (int i = begin; i < end; ++i) {
    std::vector<std::vector<int>> longer;
    for (const std::vector<int>& segments : all) {
      const int last = *std::ranges::max_element(segments);
      const bool goes_on = i > begin && segments[i - 1] >= 0;
      std::vector<int> choices = {-1, last + 1};
      if (goes_on) choices.push_back(last);
      if (costs.layers[i].runs_once) choices = {-1};
      for (const int segment : choices) {
        longer.push_back(segments);
        longer.back()[i] = segment;
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::array<int64_t, 7> MemoryOf(const StageCost& cost) {
  return {cost.kept_bytes,      cost.recomputed_bytes, cost.forward_peak,        cost.backward_peak,
          cost.input_grad_peak, cost.recompute_peak,   cost.keeps_output ? 0 : 1};
}

bool IsAsGood(const StageCost& a, const StageCost& b) {
  const auto mine = MemoryOf(a), others = MemoryOf(b);
  for (size_t i = 0; i < mine.size(); ++i) {
    if (mine[i] > others[i]) return false;
  }
  return a.recompute.seconds <= b.recompute.seconds;
}

struct Stage {
  ModelCosts costs;
  int begin = 0, end = 0;

  StageCost Sum(const std::vector<int>& segments) const {
    return SumLayers(costs, begin, end, segments);
  }
  /// The segments of a way of the front, extended to the whole list of layers.
  std::vector<int> Whole(const Recomputation& way) const {
    std::vector<int> segments(costs.layers.size(), -1);
    std::ranges::copy(way.segments, segments.begin() + begin);
    return segments;
  }
};

Stage AnyStage(int most) {
  const int layers = *rc::gen::inRange(1, most + 1);
  Stage stage = {AnyModel(layers + 2)};
  stage.begin = *rc::gen::inRange(0, 3);
  stage.end = stage.begin + layers;
  return stage;
}

RC_GTEST_PROP(RecomputeFrontTest, HasTheBestOfAllWays, ()) {
  const Stage stage = AnyStage(7);
  const std::vector<Recomputation> front =
      RecomputeFront(stage.costs, stage.begin, stage.end, std::numeric_limits<size_t>::max());
  for (const std::vector<int>& segments : AllSegments(stage.begin, stage.end, stage.costs)) {
    const StageCost sum = stage.Sum(segments);
    RC_ASSERT(std::ranges::any_of(
        front, [&](const Recomputation& way) { return IsAsGood(way.cost, sum); }));
  }
}

RC_GTEST_PROP(RecomputeFrontTest, SaysWhatItsWaysCost, ()) {
  const Stage stage = AnyStage(12);
  const auto most = static_cast<size_t>(*rc::gen::inRange(1, 20));
  const std::vector<Recomputation> front =
      RecomputeFront(stage.costs, stage.begin, stage.end, most);
  for (const Recomputation& way : front) {
    RC_ASSERT(way.segments.size() == static_cast<size_t>(stage.end - stage.begin));
    const StageCost sum = stage.Sum(stage.Whole(way));
    RC_ASSERT(MemoryOf(sum) == MemoryOf(way.cost));
    RC_ASSERT(sum.recompute == way.cost.recompute);
    RC_ASSERT(sum.deferred_bytes == way.cost.deferred_bytes);
    for (size_t i = 0; i < way.segments.size(); ++i) {
      RC_ASSERT(way.segments[i] < 0 || !stage.costs.layers[stage.begin + i].runs_once);
    }
  }
  // The cheapest way comes first; it recomputes nothing.
  RC_ASSERT(std::ranges::all_of(front[0].segments, [](int segment) { return segment < 0; }));
  RC_ASSERT(std::ranges::is_sorted(front, {}, &Recomputation::seconds));
}

// Chooses from the front as its users do: the fastest way in which so many micro-batches fit.
RC_GTEST_PROP(RecomputeFrontTest, FitsALimitInTheLeastTime, ()) {
  const Stage stage = AnyStage(6);
  const int64_t alive = *rc::gen::inRange(1, 5), limit = *rc::gen::inRange(1, 120);
  const auto fits = [&](const StageCost& cost) {
    const int64_t peak = std::max(cost.forward_peak, cost.backward_peak);
    return alive * cost.kept_bytes + std::max<int64_t>(peak - cost.kept_bytes, 0) <= limit;
  };
  constexpr double kNone = std::numeric_limits<double>::infinity();
  double least = kNone, found = kNone;
  for (const std::vector<int>& segments : AllSegments(stage.begin, stage.end, stage.costs)) {
    const StageCost sum = stage.Sum(segments);
    if (fits(sum)) least = std::min(least, sum.recompute.seconds);
  }
  for (const Recomputation& way : RecomputeFront(stage.costs, stage.begin, stage.end)) {
    if (fits(way.cost)) found = std::min(found, way.seconds());
  }
  RC_ASSERT(found == least);
}

TEST(RecomputeFrontTest, IsSmallForLayersThatAreAlike) {
  ModelCosts costs;
  LayerCost layer;
  layer.forward.seconds = 1;
  layer.parameters = 1;
  layer.input_bytes = layer.output_bytes = 100;
  layer.keeps_input = true;
  layer.kept_bytes = 1000;
  costs.layers.assign(96, layer);
  const std::vector<Recomputation> front = RecomputeFront(costs, 0, 96);
  EXPECT_LE(front.size(), FrontSize(96) + 5);
  EXPECT_EQ(front.back().seconds(), 96);
  const auto least = std::ranges::min_element(
      front, {}, [](const Recomputation& way) { return way.cost.kept_bytes; });
  EXPECT_EQ(least->cost.kept_bytes, 100);
}

// R brings the last segment back before the backward of the kept layers behind it runs.
TEST(RecomputeFrontTest, WhatIsKeptBehindASegmentGoesBackwardBesideIt) {
  ModelCosts costs;
  LayerCost layer;
  layer.parameters = 1;
  layer.input_bytes = layer.output_bytes = 10;
  layer.kept_bytes = 1000;
  costs.layers = {layer, layer};
  costs.layers[1].backward_scratch = 500;
  const StageCost kept = SumLayers(costs, 0, 2), again = SumLayers(costs, 0, 2, std::vector{0, -1});
  EXPECT_EQ(again.recomputed_bytes, 1000);
  EXPECT_EQ(again.kept_bytes, kept.kept_bytes - 1000 + 10);
  EXPECT_EQ(again.backward_peak, kept.backward_peak + 10);
}

}  // namespace
}  // namespace strata
