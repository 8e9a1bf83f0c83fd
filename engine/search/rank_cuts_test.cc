#include "engine/search/rank_cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/plan/cut/all_cuts.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

LayerCost Layer(double seconds, int64_t parameters = 0) {
  LayerCost layer;
  layer.forward.seconds = layer.input_grad.seconds = layer.weight_grad.seconds = seconds / 3;
  layer.parameters = parameters;
  layer.weight_bytes = layer.gradient_bytes = 4 * parameters;
  layer.extra_state_bytes = 2 * parameters;
  return layer;
}

ModelCosts CostsOf(std::vector<LayerCost> layers) {
  ModelCosts costs;
  costs.layers = std::move(layers);
  costs.moments = 1;
  costs.state_bytes = 4;
  costs.seconds_from = SecondsFrom::kMeasured;
  return costs;
}

/// The price of a cut, computed by the definition in rank_cuts.h.
double Price(const ModelCosts& costs, const RankCutOptions& options,
             const std::vector<int>& bounds) {
  const auto slowness_of = [&](int rank) {
    return options.slowness.empty() ? 1 : options.slowness[rank];
  };
  double longest = 0, largest = 0;
  const int ranks = *std::ranges::max_element(options.stage_ranks) + 1;
  for (int rank = 0; rank < ranks; ++rank) {
    double seconds = 0, bytes = 0, wait = 0, begin = 0;
    bool has_begun = false;
    for (size_t s = 0; s + 1 < bounds.size(); ++s) {
      for (int i = bounds[s]; i < bounds[s + 1]; ++i) {
        const LayerCost& layer = costs.layers[i];
        if (options.stage_ranks[s] != rank) {
          if (!has_begun) wait += slowness_of(options.stage_ranks[s]) * layer.forward.seconds;
          continue;
        }
        has_begun = true;
        const double input_grad = i == 0 ? 0 : layer.input_grad.seconds;
        seconds += slowness_of(rank) * options.micro_batches *
                   (layer.forward.seconds + input_grad + layer.weight_grad.seconds);
        begin += slowness_of(rank) * static_cast<double>(layer.parameters) * costs.update_seconds /
                 options.owners;
        const double state = static_cast<double>(layer.parameters) * costs.state_bytes +
                             static_cast<double>(layer.extra_state_bytes);
        bytes +=
            static_cast<double>(layer.weight_bytes + layer.gradient_bytes) + state / options.owners;
      }
    }
    longest = std::max(longest, std::max(wait, begin) + seconds);
    largest = std::max(largest, bytes);
  }
  return longest * std::pow(largest, options.memory_weight);
}

TEST(CutsByRank, GivesTheBestOfAllCutsWithTheirPrices) {
  std::mt19937 random(1);
  const std::vector<std::vector<int>> maps = {
      {0, 1}, {0, 1, 0, 1}, {0, 1, 1, 0}, {0, 1, 2, 2, 1, 0}};
  for (int i = 0; i < 100; ++i) {
    std::vector<LayerCost> layers;
    for (unsigned l = 0; l < 7 + random() % 3; ++l) {
      layers.push_back(Layer(1 + random() % 90, random() % 1000));
    }
    ModelCosts costs = CostsOf(std::move(layers));
    costs.update_seconds = 0.01;
    RankCutOptions options = {
        .stage_ranks = maps[i % maps.size()],
        .slowness = i % 2 == 0 ? std::vector<double>() : std::vector<double>{1.5, 4, 1},
        .micro_batches = 1 + static_cast<int>(random() % 5),
        .owners = 1 + i % 2 * 1.0,
        .memory_weight = i % 3 * 0.1,
        .most = 5};
    const std::vector<RankCut> cuts = CutsByRank(costs, options);
    ASSERT_FALSE(cuts.empty());
    EXPECT_TRUE(std::ranges::is_sorted(cuts, {}, &RankCut::price));
    double least = cuts.front().price;
    partition::ForEachCut(static_cast<int>(costs.layers.size()),
                          static_cast<int>(options.stage_ranks.size()),
                          [&](const std::vector<int>& bounds) {
                            least = std::min(least, Price(costs, options, bounds));
                          });
    EXPECT_NEAR(cuts.front().price, least, 1e-12 * least);
    for (const RankCut& cut : cuts) {
      EXPECT_NEAR(cut.price, Price(costs, options, cut.bounds), 1e-9 * cut.price);
    }
  }
}

/// One layer takes half of the time. So stages cannot take equally long, but ranks can.
TEST(CutsByRank, SumsOfStagesAreEqualWhereNoStagesCanBe) {
  const ModelCosts costs = CostsOf({Layer(0), Layer(1), Layer(1), Layer(6), Layer(3), Layer(1)});
  const std::vector<RankCut> cuts =
      CutsByRank(costs, {.stage_ranks = {0, 1, 0, 1}, .micro_batches = 100, .most = 1});
  ASSERT_EQ(cuts.size(), 1U);
  const std::vector<int>& at = cuts[0].bounds;
  double first = 0;
  for (const int s : {0, 2}) {
    for (int i = at[s]; i < at[s + 1]; ++i) first += costs.layers[i].forward.seconds;
  }
  EXPECT_DOUBLE_EQ(first, 2);
}

TEST(CutsByRank, LayersThatTakeNextToNothingMakeNoOtherCut) {
  const ModelCosts costs = CostsOf(
      {Layer(10), Layer(0.001), Layer(0.001), Layer(10), Layer(10), Layer(0.001), Layer(10)});
  const std::vector<RankCut> cuts =
      CutsByRank(costs, {.stage_ranks = {0, 1, 0, 1}, .micro_batches = 4, .most = 100});
  for (const RankCut& a : cuts) {
    for (const RankCut& b : cuts) {
      if (&a == &b) continue;
      double most = 0;
      for (size_t s = 0; s < a.bounds.size(); ++s) {
        double between = 0;
        for (int i = std::min(a.bounds[s], b.bounds[s]); i < std::max(a.bounds[s], b.bounds[s]);
             ++i) {
          between += 3 * costs.layers[i].forward.seconds;
        }
        most = std::max(most, between);
      }
      EXPECT_GT(most, 1);
    }
  }
  EXPECT_GT(cuts.size(), 2U);
}

TEST(CutsByRank, GivesNoneOfTooManyOrTooFewLayers) {
  const RankCutOptions options = {.stage_ranks = {0, 1, 0, 1, 0, 1}};
  EXPECT_THAT(CutsByRank(CostsOf(std::vector<LayerCost>(100, Layer(1))), options), IsEmpty());
  EXPECT_THAT(CutsByRank(CostsOf(std::vector<LayerCost>(5, Layer(1))), options), IsEmpty());
  EXPECT_THAT(CutsByRank(CostsOf(std::vector<LayerCost>(6, Layer(1))), options)[0].bounds,
              ElementsAre(0, 1, 2, 3, 4, 5, 6));
}

}  // namespace
}  // namespace strata
