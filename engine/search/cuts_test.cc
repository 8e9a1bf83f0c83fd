#include "engine/search/cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>

#include "engine/plan/cut/all_cuts.h"
#include "engine/search/search_testing.h"

namespace strata::search {
namespace {

using testing::AnyLayers;
using ::testing::ElementsAre;
using testing::Numbers;
using testing::NumbersNetwork;

constexpr double kNever = std::numeric_limits<double>::infinity();

/// The cost of a cut, by the definition in cuts.h.
double CostOf(const StageTable& table, const CutGoal& goal, const std::vector<int>& bounds) {
  const double fastest = goal.slowness.empty() ? 1 : std::ranges::min(goal.slowness);
  double cost = 0, head = 0;
  for (size_t s = 0; s + 1 < bounds.size(); ++s) {
    const StageCost& load = table.Of(bounds[s], bounds[s + 1]);
    const double pace = goal.slowness.empty() ? 1 : goal.slowness[s];
    cost = std::max(cost, head + pace * goal.micro_batches * load.seconds());
    if (!goal.head) continue;
    head += fastest * (load.forward.seconds + (goal.splits ? 0 : load.backward_seconds())) +
            goal.message;
  }
  return cost;
}

/// The least cost of all cuts.
double BruteForce(const StageTable& table, const CutGoal& goal) {
  double least = kNever;
  partition::ForEachCut(table.layers(), goal.stages, [&](const std::vector<int>& bounds) {
    for (size_t s = 0; s + 1 < bounds.size(); ++s) {
      if (goal.fits && !goal.fits(static_cast<int>(s), bounds[s], bounds[s + 1])) return;
    }
    const double cost = CostOf(table, goal, bounds);
    least = std::min(least, cost);
  });
  return least;
}

// rapidcheck tries 1,000 networks, as RC_PARAMS sets.
RC_GTEST_PROP(FindCut, IsBruteForcesSlowestStage, ()) {
  NumbersNetwork network(AnyLayers(1, 12));
  const auto table = network.Table(1, 1, Recompute::kNone);
  const int stages = *rc::gen::inRange(1, network.layers() + 1);
  for (int kind = 0; kind < 5; ++kind) {
    CutGoal goal{.stages = stages};
    goal.head = kind >= 2;
    goal.splits = kind == 3;
    if (goal.head) {
      goal.micro_batches = *rc::gen::inRange(1, 9);
      goal.message = *rc::gen::inRange(0, 9);
    }
    if (*rc::gen::arbitrary<bool>()) {
      for (int s = 0; s < stages; ++s) {
        goal.slowness.push_back(*rc::gen::element(0.5, 1.0, 2.0, 4.0));
      }
    }
    const double room = *rc::gen::inRange(10, 300);
    if (kind == 1 || kind == 4) {
      goal.fits = [&](int stage, int begin, int end) {
        const StageCost& load = table->Of(begin, end);
        return load.weight_bytes + (stages - stage) * load.kept_bytes <= room;
      };
    }
    const auto best = FindCut(*table, goal);
    const double least = BruteForce(*table, goal);
    RC_ASSERT(best.has_value() == (least != kNever));
    if (!best) continue;
    RC_ASSERT(best->cost == least);
    for (size_t s = 0; s + 1 < best->bounds.size(); ++s) {
      RC_ASSERT(best->bounds[s] < best->bounds[s + 1]);
      if (goal.fits) {
        RC_ASSERT(goal.fits(static_cast<int>(s), best->bounds[s], best->bounds[s + 1]));
      }
    }
    RC_ASSERT(CostOf(*table, goal, best->bounds) == best->cost);  // it is the cut's own
  }
}

TEST(FindCut, TakesTheLatestOfEquals) {
  NumbersNetwork network(std::vector<Numbers>(5));
  const auto table = network.Table(1, 1, Recompute::kNone);
  EXPECT_THAT(FindCut(*table, {.stages = 3})->bounds, ElementsAre(0, 2, 4, 5));
}

/// Layers that are alike are folded: the costs of few stages are computed, and the result is that
/// of a table that computes them all.
TEST(StageTable, AlikeLayersAreFolded) {
  constexpr int kLayers = 5000;
  int computed = 0;
  const auto cost = [&](int begin, int end) {
    ++computed;
    StageCost sum;
    for (int i = begin; i < end; ++i) sum.forward.seconds += i % 4 == 1 ? 4 : 1;
    if (begin == 0) sum.forward.seconds += 2;
    if (end == kLayers) sum.forward.seconds += 8;
    return sum;
  };
  std::vector<int> kinds;
  for (int i = 0; i < kLayers; ++i) kinds.push_back(i % 4 == 1);
  const StageTable folded(kLayers, cost, kinds);
  const CutGoal goal{.stages = 64, .micro_batches = 8};
  const auto cut = FindCut(folded, goal);
  EXPECT_LT(computed, 1000);
  const StageTable table(kLayers, cost);
  const auto same = FindCut(table, goal);
  EXPECT_EQ(cut->bounds, same->bounds);
  EXPECT_EQ(cut->cost, same->cost);
  for (int s = 0; s < goal.stages; ++s) {
    const int begin = cut->bounds[s], end = cut->bounds[s + 1];
    EXPECT_EQ(folded.Of(begin, end).seconds(), table.Of(begin, end).seconds()) << s;
  }
}

}  // namespace
}  // namespace strata::search
