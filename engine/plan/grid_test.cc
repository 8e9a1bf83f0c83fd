#include "engine/plan/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "engine/base/testing.h"

namespace strata {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Topology Cube() { return Topology::Make({"pipe", "data", "model"}, {2, 2, 2}); }

/// A random rank of a random grid with 1 to 4 axes, some of them the engine's, in any order.
Grid Arbitrary() {
  std::vector<std::string> left = {"pipe", "data", "model", "expert"};
  std::vector<std::string> axes;
  std::vector<int64_t> dims;
  const auto count = *rc::gen::inRange<size_t>(1, left.size() + 1);
  while (axes.size() < count) {
    axes.push_back(*rc::gen::elementOf(left));
    dims.push_back(*rc::gen::inRange(1, 5));
    std::erase(left, axes.back());
  }
  const Topology topology = Topology::Make(axes, dims);
  return Grid(topology, *rc::gen::inRange(0, topology.world_size()));
}

// ---- DeepSpeed's answers

class GridGolden : public ::testing::TestWithParam<nlohmann::json> {
 protected:
  /// Calls check(grid, expected) for every rank of the case.
  template <class Check>
  void ForEachRank(Check check) {
    const Topology topology = Topology::Make(GetParam()["axes"], GetParam()["dims"]);
    ASSERT_THAT(GetParam()["ranks"], SizeIs(static_cast<size_t>(topology.world_size())));
    for (const auto& expected : GetParam()["ranks"]) {
      SCOPED_TRACE(testing::Message() << topology.ToString() << " rank " << expected["rank"]);
      check(Grid(topology, expected["rank"]), expected);
    }
  }
};

TEST_P(GridGolden, Ids) {
  ForEachRank([](const Grid& grid, const nlohmann::json& expected) {
    EXPECT_EQ(grid.rank(), expected["rank"]);
    EXPECT_EQ(grid.stage_id(), expected["stage_id"]);
    EXPECT_EQ(grid.data_parallel_id(), expected["data_parallel_id"]);
    EXPECT_EQ(grid.is_first_stage(), expected["is_first_stage"]);
    EXPECT_EQ(grid.is_last_stage(), expected["is_last_stage"]);
  });
}

TEST_P(GridGolden, Sizes) {
  ForEachRank([](const Grid& grid, const nlohmann::json& expected) {
    EXPECT_EQ(grid.sizes().pipe, expected["pipe_parallel_size"]);
    EXPECT_EQ(grid.sizes().data, expected["data_parallel_size"]);
    EXPECT_EQ(grid.sizes().model, expected["model_parallel_size"]);
    EXPECT_EQ(grid.sizes().model, expected["slice_parallel_size"]);
    EXPECT_EQ(grid.model_parallel_rank(), expected["ds_model_rank"]);
    EXPECT_EQ(grid.model_parallel_world_size(), expected["ds_model_world_size"]);
  });
}

TEST_P(GridGolden, Groups) {
  ForEachRank([](const Grid& grid, const nlohmann::json& expected) {
    EXPECT_EQ(grid.groups().data, expected["dp_group"].get<RankList>());
    EXPECT_EQ(grid.groups().pipe, expected["pp_group"].get<RankList>());
    EXPECT_EQ(grid.groups().slice, expected["slice_group"].get<RankList>());
    EXPECT_EQ(grid.topology().CommLists("pipe"),
              expected["pipe_groups"].get<std::vector<RankList>>());
    EXPECT_EQ(grid.P2pGroups(), expected["p2p_groups"].get<std::vector<RankList>>());
    EXPECT_EQ(grid.Created(), expected["groups_created_in_order"].get<std::vector<RankList>>());
  });
}

TEST_P(GridGolden, StageToGlobal) {
  ForEachRank([](const Grid& grid, const nlohmann::json& expected) {
    RankList ranks;
    for (int stage = 0; stage < grid.sizes().pipe; ++stage) {
      ranks.push_back(grid.StageToGlobal(stage));
    }
    EXPECT_EQ(ranks, expected["stage_to_global"].get<RankList>());
  });
}

TEST_P(GridGolden, Mpu) {
  ForEachRank([](const Grid& grid, const nlohmann::json& expected) {
    const std::map<std::string, int> mpu = {
        {"get_stage_id", grid.stage_id()},
        {"get_data_parallel_id", grid.data_parallel_id()},
        {"get_pipe_parallel_rank", grid.pipe_parallel_rank()},
        {"get_pipe_parallel_world_size", grid.pipe_parallel_world_size()},
        {"get_data_parallel_rank", grid.data_parallel_rank()},
        {"get_data_parallel_world_size", grid.data_parallel_world_size()},
        {"get_model_parallel_rank", grid.model_parallel_rank()},
        {"get_model_parallel_world_size", grid.model_parallel_world_size()},
        {"get_slice_parallel_rank", grid.slice_parallel_rank()},
        {"get_slice_parallel_world_size", grid.slice_parallel_world_size()},
        {"get_global_rank", grid.global_rank()},
    };
    EXPECT_EQ(mpu, (expected["mpu"].get<std::map<std::string, int>>()));
  });
}

INSTANTIATE_TEST_SUITE_P(DeepSpeed, GridGolden, ::testing::ValuesIn(Golden("deepspeed")["grids"]));

// ---- Strata's own functions

TEST(Grid, OneRankOfACube) {
  const Grid grid(Cube(), 5);
  EXPECT_EQ(grid.stage_id(), 1);
  EXPECT_EQ(grid.data_parallel_id(), 0);
  EXPECT_EQ(grid.model_parallel_id(), 1);
  EXPECT_FALSE(grid.is_first_stage());
  EXPECT_TRUE(grid.is_last_stage());
  EXPECT_THAT(grid.groups().pipe, ElementsAre(1, 5));
  EXPECT_THAT(grid.groups().data, ElementsAre(5, 7));
  EXPECT_THAT(grid.groups().slice, ElementsAre(4, 5));
  EXPECT_THAT(grid.groups().model, ElementsAre(0, 1, 4, 5));
  EXPECT_EQ(grid.topology(), Cube());
}

TEST(Grid, RefusesBadRanks) {
  EXPECT_THAT(ConfigErrorOf([] { Grid(Cube(), 8); }), HasSubstr("rank 8"));
  EXPECT_THAT(ConfigErrorOf([] { Grid(Cube(), -1); }), HasSubstr("rank -1"));
}

TEST(Grid, StageToGlobalTakesOtherReplicas) {
  const Grid grid(Cube(), 5);
  EXPECT_EQ(grid.StageToGlobal(0), 1);
  EXPECT_EQ(grid.StageToGlobal(1), 5);
  EXPECT_EQ(grid.StageToGlobal(0, {{"data", 1}}), 3);
  EXPECT_EQ(grid.StageToGlobal(1, {{"data", 1}, {"model", 0}}), 6);
}

TEST(Grid, StageToGlobalRefusesWhatIsNotThere) {
  const Grid grid(Cube(), 5);
  const auto error = [&](int64_t stage, const Coordinates& overrides) {
    return ConfigErrorOf([&] { grid.StageToGlobal(stage, overrides); });
  };
  EXPECT_THAT(error(2, {}), HasSubstr("0 to 1, got 2"));
  EXPECT_THAT(error(-1, {}), HasSubstr("got -1"));
  EXPECT_THAT(error(0, {{"data", 2}}), HasSubstr("got 2"));
  EXPECT_THAT(error(0, {{"dta", 0}}), HasSubstr("did you mean \"data\"?"));
  EXPECT_THAT(error(0, {{"pipe", 0}}), HasSubstr("cannot be given twice"));
}

TEST(Grid, WithoutAPipeAxisThereIsOneStage) {
  const Grid grid(Topology::Make({"data"}, {3}), 1);
  EXPECT_EQ(grid.sizes().pipe, 1);
  EXPECT_TRUE(grid.is_first_stage());
  EXPECT_TRUE(grid.is_last_stage());
  EXPECT_EQ(grid.StageToGlobal(0), 1);
  EXPECT_EQ(grid.StageToGlobal(0, {{"data", 2}}), 2);
  EXPECT_THAT(grid.groups().pipe, ElementsAre(1));
  EXPECT_THAT(grid.groups().model, ElementsAre(1));
  EXPECT_THAT(grid.P2pGroups(), ElementsAre(RankList{0, 0}, RankList{1, 1}, RankList{2, 2}));
  const RankList all = {0, 1, 2};
  EXPECT_THAT(grid.Created(),
              ElementsAre(RankList{0}, RankList{1}, RankList{2}, all, RankList{0}, RankList{1},
                          RankList{2}, RankList{0}, RankList{1}, RankList{2}));
}

TEST(Grid, WithoutADataAxisThereIsOneReplica) {
  const Grid grid(Topology::Make({"model", "pipe"}, {2, 2}), 1);
  EXPECT_EQ(grid.sizes().data, 1);
  EXPECT_EQ(grid.data_parallel_id(), 0);
  EXPECT_THAT(grid.groups().data, ElementsAre(1));
  EXPECT_THAT(grid.groups().model, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(grid.groups().pipe, ElementsAre(0, 1));
  EXPECT_THAT(grid.groups().slice, ElementsAre(1, 3));
}

TEST(Grid, OfAxesThatTheEngineDoesNotKnow) {
  const Grid grid(Topology::Make({"rack", "slot"}, {2, 2}), 3);
  EXPECT_EQ(grid.stage_id(), 0);
  EXPECT_THAT(grid.groups().pipe, ElementsAre(3));
  EXPECT_THAT(grid.groups().model, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(grid.StageToGlobal(0, {{"slot", 0}}), 2);
}

TEST(Grid, AnAxisOfSizeOneIsAsGoodAsNone) {
  const Topology with = Topology::Make({"pipe", "data", "model"}, {3, 2, 1});
  const Topology without = Topology::Make({"pipe", "data"}, {3, 2});
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(Grid(with, rank).Created(), Grid(without, rank).Created());
    EXPECT_EQ(Grid(with, rank).P2pGroups(), Grid(without, rank).P2pGroups());
    EXPECT_EQ(Grid(with, rank).groups().slice, Grid(without, rank).groups().slice);
  }
}

TEST(Grid, EveryRankOfALargeWorld) {
  const Topology topology = Topology::Make({"pipe", "data", "model"}, {16, 32, 8});
  for (int rank = 0; rank < topology.world_size(); ++rank) {
    const Grid grid(topology, rank);
    ASSERT_THAT(grid.groups().model, SizeIs(16 * 8));
    ASSERT_EQ(grid.StageToGlobal(grid.stage_id()), rank);
  }
}

// ---- Laws

RC_GTEST_PROP(GridLaws, ARankIsInEachOfItsGroups, ()) {
  const Grid grid = Arbitrary();
  for (const RankList* group :
       {&grid.groups().pipe, &grid.groups().data, &grid.groups().slice, &grid.groups().model}) {
    RC_ASSERT(std::is_sorted(group->begin(), group->end()));
    RC_ASSERT(std::count(group->begin(), group->end(), grid.rank()) == 1);
    const auto created = grid.Created();
    RC_ASSERT(std::find(created.begin(), created.end(), *group) != created.end());
  }
  RC_ASSERT(grid.groups().model[grid.model_parallel_rank()] == grid.rank());
}

RC_GTEST_PROP(GridLaws, AllRanksCreateTheSameGroups, ()) {
  const Grid grid = Arbitrary();
  const Grid other(grid.topology(), *rc::gen::inRange(0, grid.topology().world_size()));
  RC_ASSERT(grid.Created() == other.Created());
  RC_ASSERT(grid.P2pGroups() == other.P2pGroups());
}

RC_GTEST_PROP(GridLaws, EachKindOfGroupPartitionsTheWorld, ()) {
  const Grid grid = Arbitrary();
  const int world = grid.topology().world_size();
  std::vector<int> times(static_cast<size_t>(world));
  for (const RankList& group : grid.Created()) {
    for (int rank : group) ++times[rank];
  }
  for (int count : times)
    RC_ASSERT(count == 4);  // in one group of a data index, and one on each of data, pipe and model
}

RC_GTEST_PROP(GridLaws, P2pGoesToTheNextStage, ()) {
  const Grid grid = Arbitrary();
  const RankList pair = grid.P2pGroups()[grid.rank()];
  RC_ASSERT(pair.size() == 2u);
  RC_ASSERT(pair[0] == grid.rank());
  RC_ASSERT(pair[1] == grid.StageToGlobal((grid.stage_id() + 1) % grid.sizes().pipe));
}

}  // namespace
}  // namespace strata
