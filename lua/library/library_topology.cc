// strata.topology and the objects of topologies and grids.

#include "engine/base/text.h"
#include "engine/plan/grid/grid.h"
#include "engine/plan/grid/topology.h"
#include "engine/spec/fields/fields.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/core/object.h"
#include "lua/library/library.h"
#include "lua/library/topology_object.h"

namespace strata::lua {

template <>
struct TypeOf<Grid> {
  static const ObjectType& Get();
};

namespace {

void PushRanks(lua_State* L, const RankList& ranks) {
  PushValue(L, Value::IntList({ranks.begin(), ranks.end()}));
}

void PushLists(lua_State* L, const std::vector<RankList>& lists) {
  lua_createtable(L, static_cast<int>(lists.size()), 0);
  for (size_t i = 0; i < lists.size(); ++i) {
    PushRanks(L, lists[i]);
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
}

/// {pipe=1, data=0}; nothing gives none.
Coordinates CoordinatesAt(lua_State* L, int index) {
  Coordinates coordinates;
  if (lua_isnoneornil(L, index)) return coordinates;
  if (!lua_istable(L, index)) ThrowExpected(L, index, "a table such as {pipe=1, data=0}");
  const TableShape shape = ShapeOf(L, index);
  if (shape.positions > 0) ThrowExpected(L, index, "a table such as {pipe=1, data=0}");
  for (const std::string& axis : shape.names) {
    lua_getfield(L, index, axis.c_str());
    coordinates[axis] = IntArgument(L, -1, Str("a whole number for ", axis));
    lua_pop(L, 1);
  }
  return coordinates;
}

std::vector<std::string> Texts(lua_State* L, int index, std::string_view what) {
  std::vector<std::string> texts;
  const Value value = ToValue(L, index, what);
  if (!value.is_list()) ThrowExpected(L, index, what);
  for (const Value& text : value.as_list()) texts.push_back(text.as_string());
  return texts;
}

/// strata.topology(axes, sizes), strata.topology(n), strata.topology{pipe=2, data=2}
int MakeTopology(lua_State* L) {
  if (lua_type(L, 1) == LUA_TNUMBER) {
    if (lua_istable(L, 2)) ThrowExpected(L, 2, "no table behind the number of ranks");
    PushObject(L, std::make_shared<Topology>(
                      Topology::FromWorldSize(IntArgument(L, 1, "a whole number of ranks"))));
  } else if (lua_gettop(L) == 2) {
    const std::vector<int64_t> sizes = ToValue(L, 2, "the sizes of the axes").as_ints();
    PushObject(L, std::make_shared<Topology>(Topology::Make(Texts(L, 1, "a list of axes"), sizes)));
  } else {
    if (!lua_istable(L, 1))
      ThrowExpected(L, 1, "a number of ranks, {pipe=2, data=2}, or axes and sizes");
    PushObject(L, std::make_shared<Topology>(Topology::FromSizes(CoordinatesAt(L, 1))));
  }
  return 1;
}

int Axes(lua_State* L) {
  Value::List axes;
  for (const std::string& axis : Self<Topology>(L).axes()) axes.emplace_back(axis);
  PushValue(L, axes);
  return 1;
}

int Dims(lua_State* L) {
  PushValue(L, Value::IntList(Self<Topology>(L).dims()));
  return 1;
}

int WorldSize(lua_State* L) {
  lua_pushinteger(L, Self<Topology>(L).world_size());
  return 1;
}

int Rank(lua_State* L) {
  lua_pushinteger(L, Self<Topology>(L).Rank(CoordinatesAt(L, 2)));
  return 1;
}

int Coord(lua_State* L) {
  const Coordinates coordinates = Self<Topology>(L).Coord(IntArgument(L, 2, "a rank"));
  lua_newtable(L);
  for (const auto& [axis, index] : coordinates) {
    lua_pushinteger(L, static_cast<lua_Integer>(index));
    lua_setfield(L, -2, axis.c_str());
  }
  return 1;
}

int Size(lua_State* L) {
  lua_pushinteger(L, Self<Topology>(L).Size(TextArgument(L, 2, "an axis")));
  return 1;
}

int Filter(lua_State* L) {
  PushRanks(L, Self<Topology>(L).Filter(CoordinatesAt(L, 2)));
  return 1;
}

int AxisList(lua_State* L) {
  const std::string axis = TextArgument(L, 2, "an axis");
  PushRanks(L, Self<Topology>(L).AxisList(axis, IntArgument(L, 3, "an index on the axis")));
  return 1;
}

int CommLists(lua_State* L) {
  PushLists(L, Self<Topology>(L).CommLists(TextArgument(L, 2, "an axis")));
  return 1;
}

/// t:repr(rank [, {omit={"data", "pipe"}, inner="_", outer="-"}])
int Repr(lua_State* L) {
  static const FieldTable kFields = {
      Field::Any("omit", "axes left out").Default(Value::List{"data", "pipe"}),
      Field::String("inner", "between an axis and its index").Default("_"),
      Field::String("outer", "between axes").Default("-")};
  Call call = CallOf(ToValue(L, 3, "the options"));
  call.subject = "repr";
  call.noun = "option";
  const Value given = Canonicalize(kFields, call);
  ReprOptions options{{}, given["inner"].as_string(), given["outer"].as_string()};
  for (const Value& axis : given["omit"].as_list()) options.omit.push_back(axis.as_string());
  PushText(L, Self<Topology>(L).Repr(IntArgument(L, 2, "a rank"), options));
  return 1;
}

int ToGrid(lua_State* L) {
  PushObject(L, std::make_shared<Grid>(Self<Topology>(L), IntArgument(L, 2, "a rank")));
  return 1;
}

int ShowTopology(lua_State* L) {
  PushText(L, Self<Topology>(L).ToString());
  return 1;
}

/// What `parallel` takes.
int TopologyData(lua_State* L) {
  const auto& topology = Self<Topology>(L);
  Value sizes = Value::MakeMap();
  for (size_t i = 0; i < topology.axes().size(); ++i) {
    sizes.Set(topology.axes()[i], topology.dims()[i]);
  }
  PushValue(L, sizes);
  return 1;
}

int SameTopology(lua_State* L) {
  const auto a = ObjectAt<Topology>(L, 1), b = ObjectAt<Topology>(L, 2);
  lua_pushboolean(L, a && b && *a == *b);
  return 1;
}

// Grids.

template <int (Grid::*kAccessor)() const>
int GridInt(lua_State* L) {
  lua_pushinteger(L, (Self<Grid>(L).*kAccessor)());
  return 1;
}

template <bool (Grid::*kAccessor)() const>
int GridBool(lua_State* L) {
  lua_pushboolean(L, (Self<Grid>(L).*kAccessor)());
  return 1;
}

int Sizes(lua_State* L) {
  const GridSizes& sizes = Self<Grid>(L).sizes();
  PushValue(L,
            Value::MakeMap({{"pipe", sizes.pipe}, {"data", sizes.data}, {"model", sizes.model}}));
  return 1;
}

int GridTopology(lua_State* L) {
  PushObject(L, std::make_shared<Topology>(Self<Grid>(L).topology()));
  return 1;
}

template <RankList GridGroups::*kGroup>
int GridGroup(lua_State* L) {
  PushRanks(L, Self<Grid>(L).groups().*kGroup);
  return 1;
}

int Groups(lua_State* L) {
  const GridGroups& groups = Self<Grid>(L).groups();
  lua_newtable(L);
  const std::pair<const char*, const RankList*> lists[] = {{"pipe", &groups.pipe},
                                                           {"data", &groups.data},
                                                           {"slice", &groups.slice},
                                                           {"model", &groups.model}};
  for (const auto& [name, ranks] : lists) {
    PushRanks(L, *ranks);
    lua_setfield(L, -2, name);
  }
  return 1;
}

int P2pGroups(lua_State* L) {
  PushLists(L, Self<Grid>(L).P2pGroups());
  return 1;
}

int Created(lua_State* L) {
  PushLists(L, Self<Grid>(L).Created());
  return 1;
}

/// g:stage_to_global(stage [, {data=1}])
int StageToGlobal(lua_State* L) {
  const int64_t stage = IntArgument(L, 2, "a stage");
  lua_pushinteger(L, Self<Grid>(L).StageToGlobal(stage, CoordinatesAt(L, 3)));
  return 1;
}

int ShowGrid(lua_State* L) {
  const Grid& grid = Self<Grid>(L);
  PushText(
      L, Str("rank ", grid.rank(), " of ", grid.topology().ToString(), ": stage ", grid.stage_id(),
             ", data ", grid.data_parallel_id(), ", model ", grid.model_parallel_id()));
  return 1;
}

/// Beside the design's own, the getters of DeepSpeed's grid, which are those of an `mpu`. Their
/// groups are lists of ranks.
std::vector<NamedFunction> GridMethods() {
  return {
      {"stage_to_global", Bound<StageToGlobal, 3>,
       "grid:stage_to_global(stage [, {data=1}]): the rank of that stage"},
      {"get_stage_id", Bound<GridInt<&Grid::stage_id>, 1>,
       "grid.stage_id: its coordinate on the pipe axis"},
      {"get_data_parallel_id", Bound<GridInt<&Grid::data_parallel_id>, 1>,
       "grid.data_parallel_id: its replica"},
      {"get_global_rank", Bound<GridInt<&Grid::global_rank>, 1>,
       "grid:get_global_rank(): as DeepSpeed's grid has it, a number"},
      {"get_pipe_parallel_rank", Bound<GridInt<&Grid::pipe_parallel_rank>, 1>,
       "grid:get_pipe_parallel_rank(): as DeepSpeed's grid has it, a number"},
      {"get_pipe_parallel_world_size", Bound<GridInt<&Grid::pipe_parallel_world_size>, 1>,
       "grid:get_pipe_parallel_world_size(): as DeepSpeed's grid has it, a number"},
      {"get_pipe_parallel_group", Bound<GridGroup<&GridGroups::pipe>, 1>,
       "grid:get_pipe_parallel_group(): as DeepSpeed's grid has it, the ranks of the group"},
      {"get_data_parallel_rank", Bound<GridInt<&Grid::data_parallel_rank>, 1>,
       "grid:get_data_parallel_rank(): as DeepSpeed's grid has it, a number"},
      {"get_data_parallel_world_size", Bound<GridInt<&Grid::data_parallel_world_size>, 1>,
       "grid:get_data_parallel_world_size(): as DeepSpeed's grid has it, a number"},
      {"get_data_parallel_group", Bound<GridGroup<&GridGroups::data>, 1>,
       "grid:get_data_parallel_group(): as DeepSpeed's grid has it, the ranks of the group"},
      {"get_slice_parallel_rank", Bound<GridInt<&Grid::slice_parallel_rank>, 1>,
       "grid:get_slice_parallel_rank(): as DeepSpeed's grid has it, a number"},
      {"get_slice_parallel_world_size", Bound<GridInt<&Grid::slice_parallel_world_size>, 1>,
       "grid:get_slice_parallel_world_size(): as DeepSpeed's grid has it, a number"},
      {"get_slice_parallel_group", Bound<GridGroup<&GridGroups::slice>, 1>,
       "grid:get_slice_parallel_group(): as DeepSpeed's grid has it, the ranks of the group"},
      {"get_model_parallel_rank", Bound<GridInt<&Grid::model_parallel_rank>, 1>,
       "grid:get_model_parallel_rank(): as DeepSpeed's grid has it, a number"},
      {"get_model_parallel_world_size", Bound<GridInt<&Grid::model_parallel_world_size>, 1>,
       "grid:get_model_parallel_world_size(): as DeepSpeed's grid has it, a number"},
      {"get_model_parallel_group", Bound<GridGroup<&GridGroups::model>, 1>,
       "grid:get_model_parallel_group(): as DeepSpeed's grid has it, the ranks of the group"},
  };
}

}  // namespace

const ObjectType& TypeOf<Topology>::Get() {
  static const ObjectType type{
      "topology",
      {{"rank", Bound<Rank, 2>, "topology:rank{pipe=1, data=0}: the rank at these coordinates"},
       {"coord", Bound<Coord, 2>, "topology:coord(rank): its coordinates"},
       {"size", Bound<Size, 2>, "topology:size(axis): ranks along it; 0 if there is none"},
       {"filter", Bound<Filter, 2>, "topology:filter{pipe=1}: the ranks with these coordinates"},
       {"axis", Bound<AxisList, 3>, "topology:axis(axis, index): the ranks with that index"},
       {"comm_lists", Bound<CommLists, 2>, "topology:comm_lists(axis): the groups along the axis"},
       {"repr", Bound<Repr, 3>,
        "topology:repr(rank [, {omit={\"data\", \"pipe\"}, inner=\"_\", outer=\"-\"}]): "
        "\"model_01\""},
       {"grid", Bound<ToGrid, 2>, "topology:grid(rank): what the rank is and talks to", nullptr,
        GivenType<Grid>}},
      {{"axes", Bound<Axes>, "topology.axes: their names"},
       {"dims", Bound<Dims>, "topology.dims: their sizes"},
       {"world_size", Bound<WorldSize>, "topology.world_size: ranks"}},
      {{"__tostring", Bound<ShowTopology>}, {"__eq", Bound<SameTopology>}},
      nullptr,
      nullptr,
      Bound<TopologyData>,
      "a topology: ranks on named axes"};
  return type;
}

const ObjectType& TypeOf<Grid>::Get() {
  static const ObjectType type{
      "grid",
      GridMethods(),
      {{"rank", Bound<GridInt<&Grid::rank>>, "grid.rank: the rank"},
       {"stage_id", Bound<GridInt<&Grid::stage_id>>},
       {"data_parallel_id", Bound<GridInt<&Grid::data_parallel_id>>},
       {"model_parallel_id", Bound<GridInt<&Grid::model_parallel_id>>,
        "grid.model_parallel_id: its part of the layers"},
       {"is_first_stage", Bound<GridBool<&Grid::is_first_stage>>,
        "grid.is_first_stage: true or false"},
       {"is_last_stage", Bound<GridBool<&Grid::is_last_stage>>,
        "grid.is_last_stage: true or false"},
       {"sizes", Bound<Sizes>, "grid.sizes: of the axes"},
       {"topology", Bound<GridTopology>, "grid.topology: all ranks", nullptr, GivenType<Topology>},
       {"groups", Bound<Groups>,
        "grid.groups: the lists pipe, data, slice and model that the rank is in"},
       {"p2p_groups", Bound<P2pGroups>, "grid.p2p_groups: neighbours on the pipe axis"},
       {"created", Bound<Created>,
        "grid.created: every group, in the order in which all ranks create them"}},
      {{"__tostring", Bound<ShowGrid>}},
      nullptr,
      nullptr,
      nullptr,
      "a grid: one rank's place in a topology, and its groups"};
  return type;
}

void AddTopology(lua_State* L) {
  const NamedFunction functions[] = {
      {"topology", Bound<MakeTopology, 2>,
       "strata.topology{pipe=2, data=2, model=1}: a grid of ranks\nalso strata.topology({\"pipe\", "
       "\"data\"}, {2, 2}) and strata.topology(12), which deals prime factors",
       nullptr, GivenType<Topology>}};
  SetFunctions(L, functions);
}

}  // namespace strata::lua
