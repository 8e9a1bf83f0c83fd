#include "engine/plan/cut/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "engine/base/testing.h"
#include "engine/plan/cut/wide_int.h"

namespace strata::partition {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Ints = std::vector<int64_t>;
using Doubles = std::vector<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The order of cuts by the promise of Balanced(); smaller is better.
struct Score {
  UInt128 heaviest = 0;
  UInt256 squares;
  Bounds earliness;  ///< the bounds, negated

  bool operator<(const Score& other) const {
    return std::tie(heaviest, squares, earliness) <
           std::tie(other.heaviest, other.squares, other.earliness);
  }
};

Score ScoreOf(const std::vector<UInt128>& weights, const Bounds& bounds) {
  Score score;
  for (size_t p = 0; p + 1 < bounds.size(); ++p) {
    const auto part =
        std::accumulate(weights.begin() + bounds[p], weights.begin() + bounds[p + 1], UInt128{0});
    score.heaviest = std::max(score.heaviest, part);
    score.squares = score.squares + Square(part);
  }
  for (int bound : bounds) score.earliness.push_back(-bound);
  return score;
}

/// Calls visit(bounds) for every cut into non-empty parts; `bounds` begins with {0}.
template <class Visit>
void ForEachCut(int items, int parts, Bounds& bounds, const Visit& visit) {
  if (parts == 1) {
    bounds.push_back(items);
    visit(bounds);
    bounds.pop_back();
    return;
  }
  for (int next = bounds.back() + 1; next + parts - 1 <= items; ++next) {
    bounds.push_back(next);
    ForEachCut(items, parts - 1, bounds, visit);
    bounds.pop_back();
  }
}

/// The best of all cuts by the definition of Balanced().
Bounds BestByTryingAll(const std::vector<UInt128>& weights, int parts) {
  Bounds best, bounds = {0};
  Score best_score;
  ForEachCut(static_cast<int>(weights.size()), parts, bounds, [&](const Bounds& candidate) {
    const Score score = ScoreOf(weights, candidate);
    if (!best.empty() && !(score < best_score)) return;
    best = candidate;
    best_score = score;
  });
  return best;
}

Bounds BestByTryingAll(const Ints& weights, int parts) {
  return BestByTryingAll(std::vector<UInt128>(weights.begin(), weights.end()), parts);
}

template <class Weight>
Weight HeaviestPart(const std::vector<Weight>& weights, const Bounds& bounds) {
  Weight heaviest = 0;
  for (size_t p = 0; p + 1 < bounds.size(); ++p) {
    heaviest = std::max(heaviest, std::accumulate(weights.begin() + bounds[p],
                                                  weights.begin() + bounds[p + 1], Weight{0}));
  }
  return heaviest;
}

/// A random case of 1 to 11 weights below `limit`, and a number of parts that they can fill.
std::pair<Ints, int> ArbitraryCase(int64_t limit) {
  const auto items = *rc::gen::inRange(1, 12);
  const auto weights =
      *rc::gen::container<Ints>(static_cast<size_t>(items), rc::gen::inRange<int64_t>(0, limit));
  return {weights, *rc::gen::inRange(1, items + 1)};
}

// ---- Uniform

TEST(Uniform, AsDeepSpeed) {
  for (const auto& entry : Golden("deepspeed")["partition_uniform"]) {
    EXPECT_EQ(Uniform(entry["items"], entry["parts"]), entry["bounds"].get<Bounds>()) << entry;
  }
}

TEST(Uniform, RemainderGoesToTheFirstParts) {
  EXPECT_THAT(Uniform(10, 4), ElementsAre(0, 3, 6, 8, 10));
  EXPECT_THAT(Uniform(12, 4), ElementsAre(0, 3, 6, 9, 12));
}

TEST(Uniform, MorePartsThanItems) {
  EXPECT_THAT(Uniform(2, 4), ElementsAre(0, 1, 2, 2, 2));
  EXPECT_THAT(Uniform(0, 3), ElementsAre(0, 0, 0, 0));
}

TEST(Uniform, RefusesImpossibleSizes) {
  EXPECT_THAT(ConfigErrorOf([] { Uniform(-1, 2); }), HasSubstr("items, got -1"));
  EXPECT_THAT(ConfigErrorOf([] { Uniform(5, 0); }), HasSubstr("parts, got 0"));
  EXPECT_THAT(ConfigErrorOf([] { Uniform(5, -7); }), HasSubstr("parts, got -7"));
  EXPECT_THAT(ConfigErrorOf([] { Uniform(INT64_MAX, 2); }), HasSubstr("1,048,576 items"));
  EXPECT_THAT(ConfigErrorOf([] { Uniform(5, INT64_MAX); }), HasSubstr("1,048,576 parts"));
}

RC_GTEST_PROP(UniformLaws, LengthsDifferByOneAtMostLongerFirst, ()) {
  const int items = *rc::gen::inRange(0, 300), parts = *rc::gen::inRange(1, 60);
  const Bounds bounds = Uniform(items, parts);
  RC_ASSERT(static_cast<int>(bounds.size()) == parts + 1);
  RC_ASSERT(bounds.front() == 0);
  RC_ASSERT(bounds.back() == items);
  std::vector<int> lengths;
  for (size_t p = 0; p + 1 < bounds.size(); ++p) lengths.push_back(bounds[p + 1] - bounds[p]);
  RC_ASSERT(std::is_sorted(lengths.rbegin(), lengths.rend()));
  RC_ASSERT(lengths.front() - lengths.back() <= 1);
}

// ---- Balanced: examples

TEST(Balanced, AlexNet) {
  const Ints weights = Golden("deepspeed")["partition_balanced"][0]["weights"];
  EXPECT_THAT(Balanced(weights, 2), ElementsAre(0, 19, 22));
  EXPECT_THAT(Balanced(weights, 3), ElementsAre(0, 16, 19, 22));
  EXPECT_THAT(Balanced(weights, 4), ElementsAre(0, 8, 16, 19, 22));
}

TEST(Balanced, NeverHeavierThanDeepSpeeds) {
  for (const auto& entry : Golden("deepspeed")["partition_balanced"]) {
    const Ints weights = entry["weights"];
    const Bounds bounds = Balanced(weights, entry["parts"]);
    EXPECT_LE(HeaviestPart(weights, bounds), entry["bottleneck"].get<int64_t>()) << entry;
  }
}

TEST(Balanced, HeaviestPartFirst) {
  EXPECT_THAT(Balanced(Ints{2, 10, 6, 3, 1}, 3), ElementsAre(0, 1, 2, 5));  // 2 | 10 | 10
}

TEST(Balanced, HeaviestPartFirstWhereEachBoundAloneWouldAllowMore) {
  // 12 | 4 8 | 12 | 10 11 | 12 | 8 4 | 12 has the least sum of squares (1305 against 1309), and
  // each of its bounds occurs in some cut whose heaviest part is 20. But its own heaviest part
  // is 21.
  EXPECT_THAT(Balanced(Ints{12, 4, 8, 12, 10, 11, 12, 8, 4, 12}, 7),
              ElementsAre(0, 2, 4, 5, 6, 7, 9, 10));
}

TEST(Balanced, ThenSquares) {
  // The 9 is the heaviest part in any case; for the rest 3 + 3 is better than 1 + 5.
  EXPECT_THAT(Balanced(Ints{9, 1, 2, 3}, 3), ElementsAre(0, 1, 3, 4));
}

TEST(Balanced, ThenLatestCutsFromTheFirst) {
  EXPECT_THAT(Balanced(Ints{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 4), ElementsAre(0, 3, 6, 8, 10));
  EXPECT_THAT(Balanced(Ints{0, 0, 0, 7}, 2), ElementsAre(0, 3, 4));
  EXPECT_THAT(Balanced(Ints{7, 0, 0, 0}, 2), ElementsAre(0, 3, 4));
  EXPECT_THAT(Balanced(Ints{0, 0, 0, 0, 0}, 3), ElementsAre(0, 3, 4, 5));
}

TEST(Balanced, OnePartHoldsAll) {
  EXPECT_THAT(Balanced(Ints{3, 1, 2}, 1), ElementsAre(0, 3));
  EXPECT_THAT(Balanced(Ints{3}, 1), ElementsAre(0, 1));
}

TEST(Balanced, MorePartsThanItemsIsUniform) {
  EXPECT_THAT(Balanced(Ints{1, 2}, 4), ElementsAre(0, 1, 2, 2, 2));
  EXPECT_THAT(Balanced(Ints{9, 0, 1}, 3), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Balanced(Ints{}, 2), ElementsAre(0, 0, 0));
  EXPECT_THAT(Balanced(Doubles{0.5}, 2), ElementsAre(0, 1, 1));
}

TEST(Balanced, ManyLayersAndStages) {
  const Ints weights(10'000, 12'596'224);
  EXPECT_EQ(Balanced(weights, 512), Uniform(10'000, 512));
}

// ---- Balanced: exactness

TEST(Balanced, SquaresBeyond64Bits) {
  // The squares of 10^15 and 10^15 + 1 differ in their last bits only.
  const int64_t big = 1'000'000'000'000'000;
  const Ints weights = {big, big, 1, big, big - 1, 1, 1, big};
  for (int parts = 1; parts <= 8; ++parts) {
    EXPECT_EQ(Balanced(weights, parts), BestByTryingAll(weights, parts)) << parts;
  }
}

TEST(Balanced, SumsBeyond64Bits) {
  const int64_t big = INT64_MAX;
  const Ints weights = {big, big - 1, big, 3, big - 2, big, 0, 1};
  for (int parts = 1; parts <= 8; ++parts) {
    EXPECT_EQ(Balanced(weights, parts), BestByTryingAll(weights, parts)) << parts;
  }
}

TEST(Balanced, DoublesThatDifferInTheLastBitOnly) {
  const double one = 1.0, more = std::nextafter(1.0, 2.0);
  EXPECT_THAT(Balanced(Doubles{one, more, one, one}, 2), ElementsAre(0, 2, 4));
  EXPECT_THAT(Balanced(Doubles{more, one, one}, 2), ElementsAre(0, 1, 3));  // 1+ | 2, not 2+ | 1
  EXPECT_THAT(Balanced(Doubles{one, one, more}, 2), ElementsAre(0, 2, 3));
}

TEST(Balanced, DoublesAreNotRoundedInSums) {
  // In double arithmetic 2^60 + 1 is 2^60, and both cuts would be equal.
  const double big = std::ldexp(1.0, 60);
  EXPECT_THAT(Balanced(Doubles{big, 1, big}, 2), ElementsAre(0, 2, 3));
  EXPECT_THAT(Balanced(Doubles{big, 1, 1, big, 1}, 2), ElementsAre(0, 3, 5));
  EXPECT_THAT(Balanced(Doubles{big, 1, big, 1}, 2), ElementsAre(0, 2, 4));
  EXPECT_THAT(Balanced(Doubles{1, big, 1, big}, 2), ElementsAre(0, 2, 4));
}

TEST(Balanced, DoublesOfAnyMagnitude) {
  const double huge = std::numeric_limits<double>::max();
  const double tiny = std::numeric_limits<double>::denorm_min();
  EXPECT_THAT(Balanced(Doubles{huge, huge, huge, huge}, 2), ElementsAre(0, 2, 4));
  EXPECT_THAT(Balanced(Doubles{tiny, tiny, tiny, tiny}, 2), ElementsAre(0, 2, 4));
  EXPECT_THAT(Balanced(Doubles{tiny, 0, 0, tiny}, 2), ElementsAre(0, 3, 4));
  EXPECT_THAT(Balanced(Doubles{-0.0, 0.0, 2.5}, 2), ElementsAre(0, 2, 3));
}

TEST(Balanced, BitsFarBelowTheSumAreDropped) {
  const double huge = std::numeric_limits<double>::max();
  EXPECT_THAT(Balanced(Doubles{1e-300, huge, 1e-300, huge, 1e-300}, 2), ElementsAre(0, 3, 5));
  EXPECT_THAT(Balanced(Doubles{1, huge, huge, huge, huge, 1, huge, huge, huge, huge}, 4),
              ElementsAre(0, 3, 6, 8, 10));
}

// ---- Balanced: refusals

TEST(Balanced, RefusesWrongWeights) {
  EXPECT_THAT(ConfigErrorOf([] {
                Balanced(Ints{1, 2, -3, 4}, 2);
              }),
              AllOf(HasSubstr("item 2"), HasSubstr("got -3")));
  EXPECT_THAT(ConfigErrorOf([] { Balanced(Doubles{1, -0.5}, 2); }), HasSubstr("got -0.5"));
  EXPECT_THAT(ConfigErrorOf([] {
                Balanced(Doubles{kInfinity, 1}, 1);
              }),
              AllOf(HasSubstr("item 0"), HasSubstr("got inf")));
  EXPECT_THAT(ConfigErrorOf([] { Balanced(Doubles{1, std::nan("")}, 1); }), HasSubstr("got nan"));
}

TEST(Balanced, RefusesImpossibleSizes) {
  EXPECT_THAT(ConfigErrorOf([] { Balanced(Ints{1, 2}, 0); }), HasSubstr("parts, got 0"));
  EXPECT_THAT(ConfigErrorOf([] { Balanced(Ints{1, 2}, int64_t{1} << 40); }), HasSubstr("parts"));
  EXPECT_THAT(ConfigErrorOf([] { Balanced(Ints(kMaxItems + 1), 2); }), HasSubstr("items, got"));
}

TEST(Balanced, RefusesTablesBeyondMemory) {
  // With one heavy item every other bound has a large window.
  Ints weights(200'000, 1);
  weights[0] = 1'000'000;
  EXPECT_THAT(ConfigErrorOf([&] { Balanced(weights, 100'000); }),
              AllOf(HasSubstr("200,000 items"), HasSubstr("1.00 GiB")));
}

TEST(Balanced, RefusesDeepSpeedsMethodBeyondPatience) {
  EXPECT_THAT(ConfigErrorOf([] { Balanced(Ints(100'000, 1), 64, Compat::kDeepSpeed); }),
              HasSubstr("too many for 100000 items"));
}

// ---- Balanced: weights from a script

TEST(BalancedValue, IntegersAndDoubles) {
  EXPECT_THAT(Balanced(Value(Value::List{2, 10, 6, 3, 1}), 3), ElementsAre(0, 1, 2, 5));
  EXPECT_THAT(Balanced(Value(Value::List{2, 10, 6.0, 3, 1}), 3), ElementsAre(0, 1, 2, 5));
  EXPECT_THAT(Balanced(Value(Value::List{0.5, 10, 6, 3.25, 1}), 3), ElementsAre(0, 1, 2, 5));
  EXPECT_THAT(Balanced(Value(Value::List{2, 10, 6, 3, 1}), 3, Compat::kDeepSpeed),
              ElementsAre(0, 2, 3, 5));
  EXPECT_THAT(Balanced(Value(Value::List{}), 2), ElementsAre(0, 0, 0));
}

TEST(BalancedValue, RefusesOtherThings) {
  const auto error = [](const Value& weights) {
    return ConfigErrorOf([&] { Balanced(weights, 2); });
  };
  EXPECT_THAT(error("abc"), HasSubstr("expected a list"));
  EXPECT_THAT(error(Value::List{1, "two", 3}),
              AllOf(HasSubstr("item 1"), HasSubstr("the string \"two\"")));
  EXPECT_THAT(error(Value::List{1, 2, Value()}), AllOf(HasSubstr("item 2"), HasSubstr("nothing")));
  EXPECT_THAT(error(Value::List{1, 2.5, -3}), AllOf(HasSubstr("item 2"), HasSubstr("got -3")));
}

// ---- Balanced: laws

RC_GTEST_PROP(BalancedLaws, IsTheBestOfAllCutsOfSmallWeights, ()) {
  const auto [weights, parts] = ArbitraryCase(5);  // small weights give many ties
  RC_ASSERT(Balanced(weights, parts) == BestByTryingAll(weights, parts));
}

RC_GTEST_PROP(BalancedLaws, IsTheBestOfAllCutsOfLargeWeights, ()) {
  const auto [weights, parts] = ArbitraryCase(1'000'000'000'000'001);
  RC_ASSERT(Balanced(weights, parts) == BestByTryingAll(weights, parts));
}

RC_GTEST_PROP(BalancedLaws, IsTheBestOfAllCutsOfHugeWeights, ()) {
  const auto [weights, parts] = ArbitraryCase(INT64_MAX);
  RC_ASSERT(Balanced(weights, parts) == BestByTryingAll(weights, parts));
}

RC_GTEST_PROP(BalancedLaws, OneGiantLeavesTheRestToTheSquares, ()) {
  auto [weights, parts] = ArbitraryCase(4);
  weights[*rc::gen::inRange<size_t>(0, weights.size())] = 1000;
  RC_ASSERT(Balanced(weights, parts) == BestByTryingAll(weights, parts));
}

RC_GTEST_PROP(BalancedLaws, IsTheBestOfAllCutsOfDoubles, ()) {
  const auto [mantissas, parts] = ArbitraryCase(int64_t{1} << 53);
  Doubles doubles;
  std::vector<UInt128> exact;  // in multiples of 2^-100
  for (int64_t mantissa : mantissas) {
    const int exponent = *rc::gen::inRange(0, 70);
    doubles.push_back(std::ldexp(static_cast<double>(mantissa), exponent - 100));
    exact.push_back(UInt128(mantissa) << exponent);
  }
  RC_ASSERT(Balanced(doubles, parts) == BestByTryingAll(exact, parts));
}

RC_GTEST_PROP(BalancedLaws, DoesNotDependOnTheUnit, ()) {
  const auto [weights, parts] = ArbitraryCase(1000);
  const int exponent = *rc::gen::inRange(-1060, 1000);
  Doubles scaled;
  for (int64_t w : weights) scaled.push_back(std::ldexp(static_cast<double>(w), exponent));
  RC_ASSERT(Balanced(scaled, parts) == Balanced(weights, parts));
}

RC_GTEST_PROP(BalancedLaws, NoEmptyPartWhileThereAreItemsEnough, ()) {
  const auto weights = *rc::gen::nonEmpty(rc::gen::container<Ints>(rc::gen::inRange(0, 3)));
  const auto items = static_cast<int>(weights.size());
  const int parts = *rc::gen::inRange(1, items + 1);
  const Bounds bounds = Balanced(weights, parts);
  RC_ASSERT(static_cast<int>(bounds.size()) == parts + 1);
  RC_ASSERT(bounds.front() == 0);
  RC_ASSERT(bounds.back() == items);
  RC_ASSERT(std::adjacent_find(bounds.begin(), bounds.end(), std::greater_equal<>()) ==
            bounds.end());
}

RC_GTEST_PROP(BalancedLaws, NeverHeavierThanDeepSpeeds, ()) {
  const auto [weights, parts] = ArbitraryCase(50);
  RC_ASSERT(HeaviestPart(weights, Balanced(weights, parts)) <=
            HeaviestPart(weights, Balanced(weights, parts, Compat::kDeepSpeed)));
}

// ---- DeepSpeed's method

TEST(BalancedCompat, AsDeepSpeed) {
  for (const auto& entry : Golden("deepspeed")["partition_balanced"]) {
    const Ints weights = entry["weights"];
    const Bounds expected = entry["bounds"];
    EXPECT_EQ(Balanced(weights, entry["parts"], Compat::kDeepSpeed), expected) << entry;
    EXPECT_EQ(HeaviestPart(weights, expected), entry["bottleneck"].get<int64_t>());
    const Doubles doubles(weights.begin(), weights.end());
    EXPECT_EQ(Balanced(doubles, entry["parts"], Compat::kDeepSpeed), expected) << entry;
  }
}

/// DeepSpeed's results (version 0.19) for cases that are not in the golden file.
TEST(BalancedCompat, AsDeepSpeedOnMoreIntegers) {
  struct Case {
    Ints weights;
    int parts;
    Bounds bounds;
  };
  const std::vector<Case> cases = {
      {{2, 10, 6, 3, 1}, 3, {0, 2, 3, 5}},
      {{0, 1, 2, 3, 3, 3}, 4, {0, 3, 4, 5, 6}},
      {{1, 1, 1, 1, 1}, 4, {0, 2, 3, 4, 5}},
      {{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, 4, {0, 4, 7, 10, 15}},
      {{0, 0, 0, 0, 0, 0}, 3, {0, 4, 5, 6}},
      {{5, 2, 6, 10, 0}, 3, {0, 2, 3, 5}},
      {{2, 17, 3, 11, 18, 1, 16, 6, 1}, 4, {0, 2, 4, 6, 9}},
      {{0, 3, 3, 0, 1, 0, 3, 0, 0, 1, 0, 3}, 5, {0, 2, 6, 9, 11, 12}},
      {{50, 999, 226, 47, 570, 879, 136, 296, 429, 147, 553, 120, 584, 315, 573, 835},
       6,
       {0, 2, 5, 8, 12, 14, 16}},
      {{2, 0, 0, 2, 2, 2, 0, 1, 0, 2, 2, 0, 2, 0, 2, 0, 1, 2, 2, 1},
       8,
       {0, 4, 7, 10, 12, 14, 17, 18, 20}},
      {{49, 20, 29, 37, 29, 23, 19, 15, 50, 11, 44, 49,
        15, 5,  36, 19, 33, 31, 21, 46, 28, 18, 38, 4},
       7,
       {0, 3, 6, 10, 13, 17, 20, 24}},
      {{990569, 283051, 497128, 730901, 696414, 68157,  63616,  766676, 735567, 324646,
        678563, 606020, 714328, 861850, 467288, 298420, 751438, 404531, 930129, 701133,
        363861, 23658,  986341, 484122, 372731, 176211, 640595, 122783, 517674, 61818},
       9,
       {0, 3, 7, 9, 12, 14, 18, 20, 24, 30}},
      {{576385118211856, 185729066604776, 385120084425983, 474789259816834, 87392569536976,
        628339819342494, 888442216109042, 921385914290263, 382944926613964, 394268099141775,
        559207294738381, 897221158765339, 77418744897386, 105380630241534},
       4,
       {0, 4, 7, 10, 14}},
      {{9007199254740993, 1, 1, 9007199254740992}, 3, {0, 1, 3, 4}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Balanced(c.weights, c.parts, Compat::kDeepSpeed), c.bounds)
        << ::testing::PrintToString(c.weights);
  }
}

/// In these cases the rounding of doubles decides; in exact arithmetic some would be ties.
TEST(BalancedCompat, AsDeepSpeedOnDoubles) {
  struct Case {
    Doubles weights;
    int parts;
    Bounds bounds;
  };
  const std::vector<Case> cases = {
      {{0.2, 0.1, 0.2, 0.7, 0.2, 0.1, 0.3, 0.1, 0.1, 0.1, 0.2, 0.1}, 4, {0, 3, 4, 7, 12}},
      {{0.3, 0.1, 0.1, 0.2, 0.7, 0.2, 0.3, 0.3, 0.3, 0.7, 0.1, 0.1}, 5, {0, 4, 5, 7, 9, 12}},
      {{2.182, 2.874, 7.384, 3.979, 9.168, 4.965, 1.664, 4.016}, 3, {0, 3, 5, 8}},
      {{2.778, 1.369, 4.305, 5.502, 7.064, 9.865, 6.827, 3.804, 2.308, 0.83, 1.513, 6.585, 0.121},
       5,
       {0, 3, 5, 6, 8, 13}},
      {{8.311, 1.823, 2.819, 1.457, 5.346, 6.098, 3.186, 1.255, 8.592, 9.502, 6.55,
        7.398, 4.566, 8.71,  9.519, 6.806, 5.593, 3.981, 3.941, 4.815, 4.004},
       6,
       {0, 5, 9, 11, 14, 17, 21}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Balanced(c.weights, c.parts, Compat::kDeepSpeed), c.bounds)
        << ::testing::PrintToString(c.weights);
  }
}

TEST(BalancedCompat, MorePartsThanItemsIsUniform) {
  EXPECT_THAT(Balanced(Ints{1, 2}, 4, Compat::kDeepSpeed), ElementsAre(0, 1, 2, 2, 2));
}

}  // namespace
}  // namespace strata::partition
