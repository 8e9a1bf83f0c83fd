#include "engine/plan/cut/best_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "engine/plan/cut/partition.h"

namespace strata::partition {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// The cost of a part is the sum of its weights, the same for every part.
PartCost SumsOf(const std::vector<int64_t>& weights) {
  return [weights](int, int begin, int end) -> std::optional<int64_t> {
    return std::accumulate(weights.begin() + begin, weights.begin() + end, int64_t{0});
  };
}

TEST(BestCutTest, LimitsMoveTheCut) {
  const std::vector<int64_t> seconds = {4, 4, 1, 1, 1, 1}, bytes = {1, 1, 9, 9, 9, 9};
  EXPECT_THAT(BestCut(6, 2, SumsOf(seconds)), ElementsAre(0, 2, 6));
  const PartCost limited = [&](int part, int begin, int end) -> std::optional<int64_t> {
    if (*SumsOf(bytes)(part, begin, end) > 20) return std::nullopt;
    return SumsOf(seconds)(part, begin, end);
  };
  EXPECT_THAT(BestCut(6, 2, limited), ElementsAre(0, 4, 6));
  EXPECT_THAT(BestCut(6, 1, limited), IsEmpty());
}

RC_GTEST_PROP(BestCutTest, IsBalancedWhereThereAreNoLimits, ()) {
  const int items = *rc::gen::inRange(1, 30);
  const int parts = *rc::gen::inRange(1, items + 1);
  const auto weights =
      *rc::gen::container<std::vector<int64_t>>(items, rc::gen::inRange<int64_t>(0, 20));
  RC_ASSERT(BestCut(items, parts, SumsOf(weights)) == Balanced(weights, parts));
}

/// Calls f(bounds) for every cut without an empty part.
void ForEachCut(int items, int parts, Bounds bounds, const std::function<void(const Bounds&)>& f) {
  if (static_cast<int>(bounds.size()) == parts) {
    bounds.push_back(items);
    return f(bounds);
  }
  for (int next = bounds.back() + 1; next < items; ++next) {
    Bounds longer = bounds;
    longer.push_back(next);
    ForEachCut(items, parts, longer, f);
  }
}

RC_GTEST_PROP(BestCutTest, EqualsBruteForceWithLimitsAndCostsThatDependOnThePart, ()) {
  const int items = *rc::gen::inRange(1, 9);
  const int parts = *rc::gen::inRange(1, items + 1);
  const auto numbers = [&](int count, int64_t most) {
    return *rc::gen::container<std::vector<int64_t>>(count, rc::gen::inRange<int64_t>(0, most));
  };
  const std::vector<int64_t> seconds = numbers(items, 9), bytes = numbers(items, 9);
  const std::vector<int64_t> factors = numbers(parts, 4), base = numbers(parts, 5);
  const int64_t limit = *rc::gen::inRange<int64_t>(5, 60);
  const PartCost cost = [&](int part, int begin, int end) -> std::optional<int64_t> {
    if (factors[part] * *SumsOf(bytes)(part, begin, end) > limit) return std::nullopt;
    return base[part] + *SumsOf(seconds)(part, begin, end);
  };
  using Score = std::tuple<int64_t, int64_t, Bounds>;
  std::optional<Score> best;
  ForEachCut(items, parts, {0}, [&](const Bounds& bounds) {
    int64_t heaviest = 0, squares = 0;
    Bounds latest;
    for (int p = 0; p < parts; ++p) {
      const std::optional<int64_t> c = cost(p, bounds[p], bounds[p + 1]);
      if (!c) return;
      heaviest = std::max(heaviest, *c);
      squares += *c * *c;
    }
    for (int bound : bounds) latest.push_back(-bound);
    const Score score = {heaviest, squares, latest};
    if (!best || score < *best) best = score;
  });
  Bounds expected;
  if (best) {
    for (int bound : std::get<2>(*best)) expected.push_back(-bound);
  }
  RC_ASSERT(BestCut(items, parts, cost) == expected);
}

}  // namespace
}  // namespace strata::partition
