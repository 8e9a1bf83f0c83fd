#include "engine/plan/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/base/testing.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const ReprOptions kNothingOmitted = {.omit = {}};

Topology Cube() { return Topology::Make({"pipe", "data", "model"}, {2, 2, 2}); }

Topology FromGolden(const nlohmann::json& entry) {
  return Topology::Make(entry["axes"], entry["dims"]);
}

/// A random topology of 1 to 4 axes with 1 to 5 indices each.
Topology Arbitrary() {
  const auto dims = *rc::gen::resize(
      4, rc::gen::nonEmpty(rc::gen::container<std::vector<int64_t>>(rc::gen::inRange(1, 6))));
  std::vector<std::string> axes;
  for (size_t i = 0; i < dims.size(); ++i)
    axes.push_back(std::string(1, static_cast<char>('a' + i)));
  return Topology::Make(axes, dims);
}

RankList AllRanks(const Topology& topology) {
  RankList ranks(static_cast<size_t>(topology.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// ---- DeepSpeed's answers

class TopologyGolden : public ::testing::TestWithParam<nlohmann::json> {};

TEST_P(TopologyGolden, Sizes) {
  const auto& entry = GetParam();
  const Topology t = FromGolden(entry);
  EXPECT_EQ(t.axes(), entry["axes"].get<std::vector<std::string>>());
  EXPECT_EQ(t.dims(), entry["dims"].get<std::vector<int64_t>>());
  EXPECT_EQ(t.world_size(), entry["world_size"]);
  EXPECT_EQ(t.Size("unknown"), entry["dim_of_unknown_axis"]);
  for (size_t i = 0; i < t.axes().size(); ++i) EXPECT_EQ(t.Size(t.axes()[i]), entry["dims"][i]);
}

TEST_P(TopologyGolden, CoordinatesOfEveryRank) {
  const auto& entry = GetParam();
  const Topology t = FromGolden(entry);
  ASSERT_THAT(entry["coords"], SizeIs(static_cast<size_t>(t.world_size())));
  for (int rank = 0; rank < t.world_size(); ++rank) {
    Coordinates expected;
    for (size_t i = 0; i < t.axes().size(); ++i) {
      expected[t.axes()[i]] = entry["coords"][rank][i];
      EXPECT_EQ(t.Index(rank, t.axes()[i]), expected[t.axes()[i]]);
    }
    EXPECT_EQ(t.Coord(rank), expected);
    EXPECT_EQ(t.Rank(expected), rank);
  }
}

TEST_P(TopologyGolden, Repr) {
  const auto& entry = GetParam();
  const Topology t = FromGolden(entry);
  for (int rank = 0; rank < t.world_size(); ++rank) {
    EXPECT_EQ(t.Repr(rank), entry["rank_repr"][rank]);
    EXPECT_EQ(t.Repr(rank, kNothingOmitted), entry["rank_repr_nothing_omitted"][rank]);
  }
}

TEST_P(TopologyGolden, Lists) {
  const auto& entry = GetParam();
  const Topology t = FromGolden(entry);
  for (const auto& [axis, lists] : entry["axis_comm_lists"].items()) {
    EXPECT_EQ(t.CommLists(axis), lists.get<std::vector<RankList>>()) << axis;
  }
  for (const auto& [axis, lists] : entry["axis_list"].items()) {
    ASSERT_THAT(lists, SizeIs(static_cast<size_t>(t.Size(axis))));
    for (size_t i = 0; i < lists.size(); ++i) {
      EXPECT_EQ(t.AxisList(axis, static_cast<int64_t>(i)), lists[i].get<RankList>()) << axis << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DeepSpeed, TopologyGolden,
                         ::testing::ValuesIn(Golden("deepspeed")["topologies"]));

TEST(PrimeFactors, AsDeepSpeed) {
  for (const auto& entry : Golden("deepspeed")["prime_factors"]) {
    EXPECT_EQ(PrimeFactors(entry["n"]), entry["factors"].get<std::vector<int64_t>>());
  }
}

TEST(PrimeFactors, OfLargeNumbers) {
  EXPECT_THAT(PrimeFactors(int64_t{1} << 62), SizeIs(62));
  EXPECT_THAT(PrimeFactors(999999937), ElementsAre(999999937));
  EXPECT_THAT(PrimeFactors(999999937LL * 2), ElementsAre(2, 999999937));
}

TEST(PrimeFactors, OnlyFromOneOn) {
  EXPECT_THAT(ConfigErrorOf([] { PrimeFactors(0); }), HasSubstr("got 0"));
  EXPECT_THAT(ConfigErrorOf([] { PrimeFactors(-12); }), HasSubstr("got -12"));
}

RC_GTEST_PROP(PrimeFactors, ArePrimeAscendingAndMultiplyToN, ()) {
  const auto n = *rc::gen::inRange<int64_t>(1, 1'000'000);
  const auto factors = PrimeFactors(n);
  RC_ASSERT(std::is_sorted(factors.begin(), factors.end()));
  RC_ASSERT(std::accumulate(factors.begin(), factors.end(), int64_t{1}, std::multiplies<>()) == n);
  for (int64_t factor : factors) RC_ASSERT(PrimeFactors(factor) == std::vector<int64_t>{factor});
}

// ---- Making one

TEST(Topology, DefaultIsOneRank) {
  const Topology t;
  EXPECT_EQ(t.world_size(), 1);
  EXPECT_EQ(t, Topology::FromWorldSize(1));
}

TEST(Topology, FromWorldSizeDealsPrimeFactorsPipeFirst) {
  const auto dims = [](int64_t n) { return Topology::FromWorldSize(n).dims(); };
  EXPECT_THAT(Topology::FromWorldSize(12).axes(), ElementsAre("pipe", "data"));
  EXPECT_THAT(dims(12), ElementsAre(6, 2));
  EXPECT_THAT(dims(2), ElementsAre(2, 1));
  EXPECT_THAT(dims(8), ElementsAre(4, 2));
  EXPECT_THAT(dims(97), ElementsAre(97, 1));
  EXPECT_THAT(dims(360), ElementsAre(2 * 2 * 3, 2 * 3 * 5));
}

TEST(Topology, FromSizesKeepsTheEnginesOrder) {
  const Topology t = Topology::FromSizes({{"model", 2}, {"data", 3}, {"pipe", 4}});
  EXPECT_EQ(t, Topology::Make({"pipe", "data", "model"}, {4, 3, 2}));
  EXPECT_EQ(Topology::FromSizes({{"data", 3}, {"pipe", 4}}),
            Topology::Make({"pipe", "data"}, {4, 3}));
  EXPECT_EQ(Topology::FromSizes({{"data", 5}}), Topology::Make({"data"}, {5}));
}

TEST(Topology, RefusesWrongDeclarations) {
  using Names = std::vector<std::string>;
  using Dims = std::vector<int64_t>;
  const auto error = [](Names axes, Dims dims) {
    return ConfigErrorOf([&] { Topology::Make(axes, dims); });
  };
  EXPECT_THAT(error({}, {}), HasSubstr("at least one axis"));
  EXPECT_THAT(error({"pipe", ""}, {1, 1}), HasSubstr("needs a name"));
  EXPECT_THAT(error({"pipe", "data", "pipe"}, {1, 1, 1}), HasSubstr("\"pipe\" twice"));
  EXPECT_THAT(error({"pipe", "data"}, {2}), HasSubstr("2 axis names and 1 size"));
  EXPECT_THAT(error({"pipe"}, {2, 2}), HasSubstr("1 axis name and 2 sizes"));
  EXPECT_THAT(error({"pipe", "data"}, {2, 0}),
              AllOf(HasSubstr("\"data\""), HasSubstr("at least 1, got 0")));
  EXPECT_THAT(error({"pipe"}, {-3}), HasSubstr("got -3"));
  EXPECT_THAT(error({"pipe"}, {INT64_MIN}), HasSubstr("got -9223372036854775808"));
}

TEST(Topology, RefusesWorldsBeyondTheLimitWithoutOverflow) {
  const int64_t limit = Topology::kMaxWorldSize;
  EXPECT_EQ(Topology::Make({"a"}, {limit}).world_size(), limit);
  EXPECT_EQ(Topology::Make({"a", "b"}, {1024, limit / 1024}).world_size(), limit);
  const auto error = [](std::vector<int64_t> dims) {
    return ConfigErrorOf([&] { Topology::Make({"a", "b"}, dims); });
  };
  EXPECT_THAT(error({limit + 1, 1}), HasSubstr("at most 1,048,576 ranks"));
  EXPECT_THAT(error({limit, 2}), HasSubstr("1048576 x 2"));
  EXPECT_THAT(error({INT64_MAX, INT64_MAX}), HasSubstr("at most"));
  EXPECT_THAT(error({int64_t{1} << 32, int64_t{1} << 32}), HasSubstr("at most"));
}

TEST(Topology, RefusesWrongSizesByNameAndWorldSizes) {
  EXPECT_THAT(ConfigErrorOf([] {
                Topology::FromSizes({{"pip", 2}});
              }),
              HasSubstr("did you mean \"pipe\"?"));
  EXPECT_THAT(ConfigErrorOf([] {
                Topology::FromSizes({{"expert", 2}, {"pipe", 2}});
              }),
              AllOf(HasSubstr("\"expert\""), HasSubstr("a list of names")));
  EXPECT_THAT(ConfigErrorOf([] { Topology::FromSizes({}); }), HasSubstr("at least one axis"));
  EXPECT_THAT(ConfigErrorOf([] { Topology::FromWorldSize(0); }), HasSubstr("got 0"));
  EXPECT_THAT(ConfigErrorOf([] { Topology::FromWorldSize(INT64_MAX); }), HasSubstr("1,048,576"));
}

// ---- Asking it

TEST(Topology, RankAndCoordinates) {
  const Topology t = Cube();
  EXPECT_EQ(t.Rank({{"pipe", 1}, {"data", 0}, {"model", 1}}), 5);
  EXPECT_EQ(t.Coord(5), (Coordinates{{"pipe", 1}, {"data", 0}, {"model", 1}}));
  EXPECT_EQ(t.Index(5, "pipe"), 1);
  EXPECT_EQ(t.Index(5, "data"), 0);
}

TEST(Topology, RankRefusesPartialUnknownAndOutOfRange) {
  const Topology t = Cube();
  const auto error = [&](const Coordinates& c) { return ConfigErrorOf([&] { t.Rank(c); }); };
  EXPECT_THAT(error({{"pipe", 1}, {"model", 0}}),
              AllOf(HasSubstr("pipe, data, model"), HasSubstr("none was given for \"data\"")));
  EXPECT_THAT(error({}), HasSubstr("\"pipe\""));
  EXPECT_THAT(error({{"pipe", 1}, {"date", 0}, {"model", 0}}),
              AllOf(HasSubstr("\"date\""), HasSubstr("did you mean \"data\"?")));
  EXPECT_THAT(error({{"pipe", 1}, {"data", 0}, {"model", 0}, {"expert", 0}}),
              AllOf(HasSubstr("\"expert\""), HasSubstr("one of pipe, data, model")));
  EXPECT_THAT(error({{"pipe", 2}, {"data", 0}, {"model", 0}}),
              AllOf(HasSubstr("\"pipe\""), HasSubstr("0 to 1, got 2")));
  EXPECT_THAT(error({{"pipe", 0}, {"data", -1}, {"model", 0}}), HasSubstr("got -1"));
  EXPECT_THAT(error({{"pipe", int64_t{1} << 32}, {"data", 0}, {"model", 0}}),
              HasSubstr("got 4294967296"));
}

TEST(Topology, RefusesRanksOutsideTheWorld) {
  const Topology t = Cube();
  for (const int64_t rank : {int64_t{-1}, int64_t{8}, int64_t{1} << 32, INT64_MIN}) {
    const auto expected = AllOf(HasSubstr(std::to_string(rank)), HasSubstr("0 to 7"));
    EXPECT_THAT(ConfigErrorOf([&] { t.Coord(rank); }), expected);
    EXPECT_THAT(ConfigErrorOf([&] { t.Index(rank, "pipe"); }), expected);
    EXPECT_THAT(ConfigErrorOf([&] { t.CommList("pipe", rank); }), expected);
    EXPECT_THAT(ConfigErrorOf([&] { t.Repr(rank); }), expected);
  }
}

TEST(Topology, FilterAgreesWithAllGivenCoordinates) {
  const Topology t = Cube();
  EXPECT_THAT(t.Filter({{"pipe", 1}}), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(t.Filter({{"model", 1}}), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(t.Filter({{"pipe", 0}, {"model", 0}}), ElementsAre(0, 2));
  EXPECT_THAT(t.Filter({{"pipe", 1}, {"data", 1}, {"model", 1}}), ElementsAre(7));
  EXPECT_EQ(t.Filter({}), AllRanks(t));
}

TEST(Topology, FilterAndAxisListRefuseWhatIsNotThere) {
  const Topology t = Cube();
  EXPECT_THAT(ConfigErrorOf([&] { t.Filter({{"pipes", 0}}); }), HasSubstr("did you mean \"pipe\""));
  EXPECT_THAT(ConfigErrorOf([&] { t.Filter({{"pipe", 2}}); }), HasSubstr("got 2"));
  EXPECT_THAT(ConfigErrorOf([&] { t.AxisList("expert", 0); }), HasSubstr("\"expert\""));
  EXPECT_THAT(ConfigErrorOf([&] { t.AxisList("data", -1); }), HasSubstr("got -1"));
  EXPECT_THAT(ConfigErrorOf([&] { t.Index(0, "expert"); }), HasSubstr("\"expert\""));
  EXPECT_THAT(ConfigErrorOf([&] { t.CommList("expert", 0); }), HasSubstr("\"expert\""));
}

TEST(Topology, UnknownAxisHasNoGroups) {
  EXPECT_THAT(Cube().CommLists("expert"), IsEmpty());
  EXPECT_EQ(Cube().Size("expert"), 0);
  EXPECT_FALSE(Cube().Has("expert"));
  EXPECT_TRUE(Cube().Has("model"));
}

TEST(Topology, ReprOptions) {
  const Topology t = Topology::Make({"pipe", "expert"}, {2, 120});
  EXPECT_EQ(t.Repr(121), "expert_01");
  EXPECT_EQ(t.Repr(239), "expert_119");
  EXPECT_EQ(t.Repr(121, {.omit = {"expert"}}), "pipe_01");
  EXPECT_EQ(t.Repr(121, {.omit = {}, .inner = "=", .outer = ", "}), "pipe=01, expert=01");
  EXPECT_EQ(t.Repr(121, {.omit = {"pipe", "data", "model"}}), "expert_01");
  EXPECT_THAT(ConfigErrorOf([&] { t.Repr(0, {.omit = {"exprt"}}); }),
              HasSubstr("did you mean \"expert\"?"));
}

TEST(Topology, ToString) {
  EXPECT_EQ(Cube().ToString(), "pipe=2 data=2 model=2 (8 ranks)");
  EXPECT_EQ(Topology::Make({"a"}, {1}).ToString(), "a=1 (1 rank)");
}

TEST(Topology, Equality) {
  EXPECT_EQ(Cube(), Cube());
  EXPECT_NE(Cube(), Topology::Make({"pipe", "data", "model"}, {2, 2, 1}));
  EXPECT_NE(Cube(), Topology::Make({"pipe", "model", "data"}, {2, 2, 2}));
}

TEST(Topology, AMillionRanksAreListedOnce) {
  const Topology t = Topology::Make({"pipe", "data", "model"}, {64, 2048, 8});
  EXPECT_EQ(t.world_size(), 1 << 20);
  EXPECT_EQ(t.Rank(t.Coord(1'000'000)), 1'000'000);
  EXPECT_THAT(t.CommLists("pipe"), SizeIs(2048 * 8));
  EXPECT_THAT(t.CommList("model", 1'000'000), SizeIs(8));
}

// ---- Laws

RC_GTEST_PROP(TopologyLaws, RankAndCoordAreInverse, ()) {
  const Topology t = Arbitrary();
  const int rank = *rc::gen::inRange(0, t.world_size());
  RC_ASSERT(t.Rank(t.Coord(rank)) == rank);
}

RC_GTEST_PROP(TopologyLaws, LastAxisIsFastest, ()) {
  const Topology t = Arbitrary();
  for (int rank = 0; rank + 1 < t.world_size(); ++rank) {
    std::vector<int> here, next;
    for (const auto& axis : t.axes()) {
      here.push_back(t.Index(rank, axis));
      next.push_back(t.Index(rank + 1, axis));
    }
    RC_ASSERT(here < next);
  }
}

RC_GTEST_PROP(TopologyLaws, CommListsPartitionTheWorld, ()) {
  const Topology t = Arbitrary();
  const auto axis = *rc::gen::elementOf(t.axes());
  RankList seen;
  for (const RankList& list : t.CommLists(axis)) {
    RC_ASSERT(static_cast<int>(list.size()) == t.Size(axis));
    for (size_t i = 0; i < list.size(); ++i) {
      Coordinates expected = t.Coord(list[0]);
      expected[axis] = static_cast<int64_t>(i);
      RC_ASSERT(t.Coord(list[i]) == expected);
      RC_ASSERT(t.CommList(axis, list[i]) == list);
      seen.push_back(list[i]);
    }
  }
  std::sort(seen.begin(), seen.end());
  RC_ASSERT(seen == AllRanks(t));
}

RC_GTEST_PROP(TopologyLaws, FilterIsTheListOfMatchingRanks, ()) {
  const Topology t = Arbitrary();
  Coordinates wanted;
  for (const auto& axis : t.axes()) {
    if (*rc::gen::arbitrary<bool>()) wanted[axis] = *rc::gen::inRange(0, t.Size(axis));
  }
  RankList expected;
  for (int rank : AllRanks(t)) {
    const bool matches = std::all_of(wanted.begin(), wanted.end(), [&](const auto& entry) {
      return t.Index(rank, entry.first) == entry.second;
    });
    if (matches) expected.push_back(rank);
  }
  RC_ASSERT(t.Filter(wanted) == expected);
}

RC_GTEST_PROP(TopologyLaws, DefaultTopologyCoversTheWorld, ()) {
  const auto n = *rc::gen::inRange<int64_t>(1, 5000);
  const Topology t = Topology::FromWorldSize(n);
  RC_ASSERT(t.world_size() == n);
  RC_ASSERT(t.Size("pipe") * t.Size("data") == n);
}

}  // namespace
}  // namespace strata
