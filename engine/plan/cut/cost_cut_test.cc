// Tests of CutByCosts() against all cuts of small lists, and of its limits.
#include "engine/plan/cut/cost_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "engine/base/error.h"
#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/plan/cut/best_cut.h"

namespace strata::partition {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Layers with these seconds and kept bytes. The sizes are multiples of the allocator's unit.
struct Given {
  Job job;
  ModelCosts costs;
  CostCutOptions options;

  Given(const std::vector<double>& seconds, const std::vector<int64_t>& kept, int stages) {
    for (size_t i = 0; i < seconds.size(); ++i) {
      LayerCost layer;
      layer.forward.seconds = seconds[i] / 2;
      layer.input_grad.seconds = seconds[i] / 4;
      layer.weight_grad.seconds = seconds[i] / 4;
      layer.parameters = 1;
      layer.weight_bytes = layer.gradient_bytes = 4;
      layer.kept_bytes = kept[i];
      costs.layers.push_back(layer);
      job.layers.emplace_back();
    }
    options.settings.resize(static_cast<size_t>(stages));
  }

  std::vector<int> Cut() const { return CutByCosts(job, costs, options); }

  double SecondsOf(int begin, int end) const {
    const StageCost sum = SumLayers(costs, begin, end);
    return sum.forward.seconds + sum.input_grad.seconds + sum.weight_grad.seconds;
  }
  int64_t BytesOf(size_t stage, int begin, int end) const {
    return StageMemory(costs, SumLayers(costs, begin, end), options.settings[stage]);
  }

  /// The least cost that the worst stage of any cut can have; infinity if no cut is within the
  /// limit.
  double Least(const std::function<double(size_t, int, int)>& cost, size_t stage = 0,
               int begin = 0) const {
    const auto layers = static_cast<int>(costs.layers.size());
    const auto left = static_cast<int>(options.settings.size() - stage);
    if (left == 1) return cost(stage, begin, layers);
    double least = std::numeric_limits<double>::infinity();
    for (int end = begin + 1; end + left - 1 <= layers; ++end) {
      least = std::min(least, std::max(cost(stage, begin, end), Least(cost, stage + 1, end)));
    }
    return least;
  }
  double Worst(const std::vector<int>& bounds,
               const std::function<double(size_t, int, int)>& cost) const {
    double worst = 0;
    for (size_t s = 0; s + 1 < bounds.size(); ++s) {
      worst = std::max(worst, cost(s, bounds[s], bounds[s + 1]));
    }
    return worst;
  }
};

RC_GTEST_PROP(CutByCosts, IsAsGoodAsTheBestOfAllCuts, ()) {
  const int layers = *rc::gen::inRange(1, 9),
            stages = *rc::gen::inRange(1, std::min(layers, 4) + 1);
  const auto seconds =
      *rc::gen::container<std::vector<int>>(static_cast<size_t>(layers), rc::gen::inRange(0, 20));
  const auto kept =
      *rc::gen::container<std::vector<int>>(static_cast<size_t>(layers), rc::gen::inRange(0, 9));
  std::vector<int64_t> bytes;
  for (const int size : kept) bytes.push_back(size * (int64_t{4} << 20));
  Given given({seconds.begin(), seconds.end()}, bytes, stages);
  for (StageSetting& setting : given.options.settings) setting.live = *rc::gen::inRange(1, 4);
  given.options.by_memory = *rc::gen::arbitrary<bool>();
  const bool is_limited = *rc::gen::arbitrary<bool>(), differ = *rc::gen::arbitrary<bool>();
  int64_t largest = 0;
  for (int s = 0; s < stages && is_limited; ++s) {
    const int64_t limit = *rc::gen::inRange<int64_t>(1, 200) << 20;
    given.options.limits.push_back(s == 0 || differ ? limit : given.options.limits[0]);
    largest = std::max(largest, given.options.limits.back());
  }
  for (int s = 0; s < stages; ++s) {
    given.options.stage_ranks.push_back(s);
    if (differ) given.options.slowness.push_back(*rc::gen::inRange(1, 9) / 2.0);
  }

  const auto cost = [&](size_t stage, int begin, int end) {
    const auto size = static_cast<double>(given.BytesOf(stage, begin, end));
    const int64_t limit = is_limited ? given.options.limits[stage] : largest;
    if (is_limited && size > static_cast<double>(limit)) {
      return std::numeric_limits<double>::infinity();
    }
    if (given.options.by_memory) return size + static_cast<double>(largest - limit);
    return (differ ? given.options.slowness[stage] : 1) * given.SecondsOf(begin, end);
  };
  const double least = given.Least(cost);
  if (std::isinf(least)) {
    RC_ASSERT_THROWS_AS(given.Cut(), ConfigError);
  } else {
    RC_ASSERT(std::abs(given.Worst(given.Cut(), cost) - least) <= 1e-9 * least);
  }
}

TEST(CutByCosts, CountsWhatRunsOncePerStep) {
  Given given({1, 1, 1, 1}, {0, 0, 0, 0}, 2);
  EXPECT_THAT(given.Cut(), ElementsAre(0, 2, 4));
  given.costs.layers[0].parameters = 1000;
  given.costs.update_seconds = 0.01;  // the step of the first layer takes ten seconds
  EXPECT_THAT(given.Cut(), ElementsAre(0, 1, 4));
  given.options.micro_batches = 1000;  // so many that the step no longer matters
  EXPECT_THAT(given.Cut(), ElementsAre(0, 2, 4));
}

TEST(CutByCosts, CountsDataAtBothEnds) {
  Given given({2, 2, 2, 2}, {0, 0, 0, 0}, 2);
  given.costs.input_seconds = 5;
  EXPECT_THAT(given.Cut(), ElementsAre(0, 1, 4));
  given.costs.input_seconds = 0;
  given.costs.target_seconds = 5;
  EXPECT_THAT(given.Cut(), ElementsAre(0, 3, 4));
}

TEST(CutByCosts, CountsWhatIsComputedAgain) {
  Given given({2, 2, 2, 2}, {0, 0, 0, 0}, 2);
  given.job.recompute = {.method = RecomputeSpec::Method::kLayers,
                         .layers = LayerSelector{{Value(0)}}};
  given.costs.layers[0].forward.seconds = 3;  // it runs a second time when it is recomputed
  EXPECT_THAT(given.Cut(), ElementsAre(0, 1, 4));
}

TEST(CutByCosts, CountsWhatAFunctionOfLayerAndStageChooses) {
  Given given({2, 2, 2, 2, 2}, {0, 0, 0, 0, 0}, 2);
  given.job.recompute.method = RecomputeSpec::Method::kFunction;
  given.options.recomputes = [](int, int stage) { return stage == 0; };
  EXPECT_THAT(given.Cut(), ElementsAre(0, 2, 5));  // 2 x 3 and 3 x 2 seconds
  given.options.recomputes = [](int, int stage) { return stage == 1; };
  EXPECT_THAT(given.Cut(), ElementsAre(0, 3, 5));
  given.options.recomputes = [](int place, int) { return place == 4; };
  EXPECT_THAT(given.Cut(), ElementsAre(0, 3, 5));
  given.options.recomputes = [](int place, int) { return place == 0; };
  EXPECT_THAT(given.Cut(), ElementsAre(0, 2, 5));
}

TEST(CutByCosts, AsksAFunctionOnlyAboutStagesThatALayerCanBeOn) {
  Given given({2, 2, 2, 2, 2}, {0, 0, 0, 0, 0}, 3);
  given.job.recompute.method = RecomputeSpec::Method::kFunction;
  std::vector<std::string> asked;
  given.options.recomputes = [&](int place, int stage) {
    asked.push_back(Str(place, " on ", stage));
    return true;
  };
  given.Cut();
  EXPECT_THAT(asked, ElementsAre("0 on 0", "1 on 0", "2 on 0", "1 on 1", "2 on 1", "3 on 1",
                                 "2 on 2", "3 on 2", "4 on 2"));
}

TEST(CutByCosts, KnowsWhatIsNeverComputedAgain) {
  Given given({1, 1}, {int64_t{8} << 20, 0}, 2);
  given.job.recompute.method = RecomputeSpec::Method::kAuto;
  given.options.limits.assign(2, int64_t{16} << 20);
  given.options.settings[0].live = 8;
  EXPECT_THAT(given.Cut(), ElementsAre(0, 1, 2));
  given.costs.layers[0].runs_once = true;
  EXPECT_THROW(given.Cut(), ConfigError);
}

TEST(CutByCosts, SaysWhatTheLeastCutNeeds) {
  Given given({1, 1}, {int64_t{64} << 20, int64_t{8} << 20}, 2);
  given.options.limits.assign(2, int64_t{1} << 20);
  const auto needed = [&](int stage) {
    return FormatBytes(static_cast<double>(given.BytesOf(stage, stage, stage + 1)));
  };
  EXPECT_THAT(ErrorOf([&] { given.Cut(); }),
              HasSubstr("2 stages keeps to 1.00 MiB on each; the least is " + needed(0) +
                        ", with the cuts 0, 1, 2"));
  given.options.limits = {int64_t{1} << 30, int64_t{1} << 20};
  given.options.stage_ranks = {0, 1};
  EXPECT_THAT(ErrorOf([&] { given.Cut(); }),
              HasSubstr("keeps to the limit of each rank; the least is " + needed(1) +
                        " on rank 1, whose limit is 1.00 MiB, with the cuts 0, 1, 2"));
}

/// A list that is too long for tables of all pairs has the cuts that these tables give.
TEST(CutByCosts, ALongListIsCutAsWell) {
  constexpr int kLayers = 600, kStages = 32;
  std::vector<double> seconds;
  for (int i = 0; i < kLayers; ++i) seconds.push_back(i == 200 ? 0.2 : 1e-3 * (1 + i * i % 17));
  Given given(seconds, std::vector<int64_t>(kLayers), kStages);
  given.options.micro_batches = 4;
  given.costs.update_seconds = 1e-3;
  std::vector<double> before = {0};  // the first layer computes no gradient of its input
  for (const double layer : seconds) before.push_back(before.back() + layer);
  const auto cost = [&](int stage, int begin, int end) -> std::optional<int64_t> {
    const double each = before[end] - before[begin] - (begin == 0 ? seconds[0] / 4 : 0);
    const double slowness = given.options.slowness.empty() ? 1 : given.options.slowness[stage];
    return std::llround(slowness * 1e12 * (4 * each + 1e-3 * (end - begin)));
  };
  const auto slowest = [&](const std::vector<int>& bounds) {
    int64_t most = 0;
    for (int s = 0; s < kStages; ++s) most = std::max(most, *cost(s, bounds[s], bounds[s + 1]));
    return static_cast<double>(most);
  };
  const auto expect_best = [&] {
    const double least = slowest(BestCut(kLayers, kStages, cost));
    EXPECT_NEAR(slowest(given.Cut()), least, 1e-9 * least);
  };
  expect_best();
  for (int s = 0; s < kStages; ++s) given.options.slowness.push_back(1 + s * s % 5);
  expect_best();
  given.options.slowness.back() = 1e4;  // one layer is more than its share
  expect_best();
  given.options.slowness.assign(kStages, 50);  // the long layer should be on the last stage
  given.options.slowness.back() = 0.1;
  expect_best();
}

}  // namespace
}  // namespace strata::partition
