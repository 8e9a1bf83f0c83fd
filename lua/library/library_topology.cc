// strata.topology; topologies and grids as Lua objects.

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fields/fields.h"
#include "engine/base/text.h"
#include "engine/plan/grid.h"
#include "engine/plan/topology.h"
#include "lua/core/arguments.h"
#include "lua/core/bind.h"
#include "lua/library/library.h"
#include "lua/library/topology_object.h"

namespace strata::lua {

template <>
struct TypeOf<Grid> {
  static const ObjectType& Get();
};

/// Reads coordinates such as {pipe=1, data=0}; a missing argument gives no coordinates.
template <>
Coordinates ArgumentAt(lua_State* L, int index, const char* what) {
  Coordinates coordinates;
  if (lua_isnoneornil(L, index)) return coordinates;
  if (!lua_istable(L, index) || ShapeOf(L, index).positions > 0) ThrowExpected(L, index, what);
  for (const std::string& axis : ShapeOf(L, index).names) {
    lua_getfield(L, index, axis.c_str());
    coordinates[axis] = IntArgument(L, -1, Str("a whole number for ", axis));
    lua_pop(L, 1);
  }
  return coordinates;
}

namespace {

constexpr Words kCoordinates("a table such as {pipe=1, data=0}");

/// strata.topology(axes, sizes), strata.topology(n), strata.topology{pipe=2, data=2}
Topology MakeTopology(lua_State* L) {
  if (lua_type(L, 1) == LUA_TNUMBER) {
    if (lua_istable(L, 2)) ThrowExpected(L, 2, "no table behind the number of ranks");
    return Topology::FromWorldSize(IntArgument(L, 1, "a whole number of ranks"));
  }
  if (lua_gettop(L) == 2) {
    const std::vector<int64_t> sizes = ToValue(L, 2, "the sizes of the axes").as_ints();
    const Value names = ToValue(L, 1, "a list of axes");
    if (!names.is_list()) ThrowExpected(L, 1, "a list of axes");
    std::vector<std::string> axes;
    for (const Value& name : names.as_list()) axes.push_back(name.as_string());
    return Topology::Make(axes, sizes);
  }
  if (lua_istable(L, 1))
    return Topology::FromSizes(ArgumentAt<Coordinates>(L, 1, kCoordinates.text));
  ThrowExpected(L, 1, "a number of ranks, {pipe=2, data=2}, or axes and sizes");
}

/// t:repr(rank [, {omit={"data", "pipe"}, inner="_", outer="-"}])
std::string Repr(const Topology& self, int64_t rank, const Value& options) {
  static const FieldTable kFields = {
      Field::Any("omit", "axes left out").Default(Value::List{"data", "pipe"}),
      Field::String("inner", "between an axis and its index").Default("_"),
      Field::String("outer", "between axes").Default("-")};
  const Value given = OptionsOf(options, kFields, "repr");
  ReprOptions how{{}, given["inner"].as_string(), given["outer"].as_string()};
  for (const Value& axis : given["omit"].as_list()) how.omit.push_back(axis.as_string());
  return self.Repr(rank, how);
}

/// The sizes of the axes, in the form that the job's key `parallel` takes.
Value SizesOfAxes(const Topology& topology) {
  Value sizes = Value::MakeMap();
  for (size_t i = 0; i < topology.axes().size(); ++i) {
    sizes.Set(topology.axes()[i], topology.dims()[i]);
  }
  return sizes;
}

bool IsSame(lua_State* L) {
  const auto a = ObjectAt<Topology>(L, 1), b = ObjectAt<Topology>(L, 2);
  return a && b && *a == *b;
}

Grid MakeGrid(const Topology& topology, int64_t rank) { return {topology, rank}; }

template <RankList GridGroups::*kGroup>
RankList Group(const Grid& grid) {
  return grid.groups().*kGroup;
}

std::map<std::string, RankList> Groups(const Grid& grid) {
  const GridGroups& groups = grid.groups();
  return {{"pipe", groups.pipe},
          {"data", groups.data},
          {"slice", groups.slice},
          {"model", groups.model}};
}

std::map<std::string, int> Sizes(const Grid& grid) {
  const GridSizes& sizes = grid.sizes();
  return {{"pipe", sizes.pipe}, {"data", sizes.data}, {"model", sizes.model}};
}

std::string ShowGrid(const Grid& grid) {
  return Str("rank ", grid.rank(), " of ", grid.topology().ToString(), ": stage ", grid.stage_id(),
             ", data ", grid.data_parallel_id(), ", model ", grid.model_parallel_id());
}

/// The getters of DeepSpeed's grid, which are also those of an `mpu`. Groups are returned as lists
/// of ranks.
constexpr NamedFunction kGetters[] = {
    {"get_stage_id", Function<&Grid::stage_id>},
    {"get_data_parallel_id", Function<&Grid::data_parallel_id>},
    {"get_global_rank", Function<&Grid::global_rank>},
    {"get_pipe_parallel_rank", Function<&Grid::pipe_parallel_rank>},
    {"get_pipe_parallel_world_size", Function<&Grid::pipe_parallel_world_size>},
    {"get_pipe_parallel_group", Function<Group<&GridGroups::pipe>>},
    {"get_data_parallel_rank", Function<&Grid::data_parallel_rank>},
    {"get_data_parallel_world_size", Function<&Grid::data_parallel_world_size>},
    {"get_data_parallel_group", Function<Group<&GridGroups::data>>},
    {"get_slice_parallel_rank", Function<&Grid::slice_parallel_rank>},
    {"get_slice_parallel_world_size", Function<&Grid::slice_parallel_world_size>},
    {"get_slice_parallel_group", Function<Group<&GridGroups::slice>>},
    {"get_model_parallel_rank", Function<&Grid::model_parallel_rank>},
    {"get_model_parallel_world_size", Function<&Grid::model_parallel_world_size>},
    {"get_model_parallel_group", Function<Group<&GridGroups::model>>},
};

std::vector<NamedFunction> GridMethods() {
  static std::deque<std::string> helps;  // these must live as long as the type
  std::vector<NamedFunction> methods = {
      {"stage_to_global", Function<&Grid::StageToGlobal, "a stage", kCoordinates>,
       "grid:stage_to_global(stage [, {data=1}]): the rank of that stage"}};
  for (NamedFunction getter : kGetters) {
    const bool is_group = std::string_view(getter.name).ends_with("_group");
    helps.push_back(Str("grid:", getter.name, "(): as DeepSpeed's grid has it, ",
                        is_group ? "the ranks of the group" : "a number"));
    getter.help = helps.back().c_str();
    methods.push_back(getter);
  }
  return methods;
}

}  // namespace

const ObjectType& TypeOf<Topology>::Get() {
  static const ObjectType type{
      .name = "topology",
      .methods = {{"rank", Function<&Topology::Rank, kCoordinates>,
                   "topology:rank{pipe=1, data=0}: the rank at these coordinates"},
                  {"coord", Function<&Topology::Coord, "a rank">,
                   "topology:coord(rank): its coordinates"},
                  {"size", Function<&Topology::Size, "an axis">,
                   "topology:size(axis): ranks along it; 0 if there is none"},
                  {"filter", Function<&Topology::Filter, kCoordinates>,
                   "topology:filter{pipe=1}: the ranks with these coordinates"},
                  {"axis", Function<&Topology::AxisList, "an axis", "an index on the axis">,
                   "topology:axis(axis, index): the ranks with that index"},
                  {"comm_lists", Function<&Topology::CommLists, "an axis">,
                   "topology:comm_lists(axis): the groups along the axis"},
                  {"repr", Function<Repr, "a rank", "the options">,
                   "topology:repr(rank [, {omit={\"data\", \"pipe\"}, inner=\"_\", outer=\"-\"}]): "
                   "\"model_01\""},
                  {"grid", Function<MakeGrid, "a rank">,
                   "topology:grid(rank): what the rank is and talks to", nullptr, GivenType<Grid>}},
      .properties = {{"axes", Function<&Topology::axes>, "topology.axes: their names"},
                     {"dims", Function<&Topology::dims>, "topology.dims: their sizes"},
                     {"world_size", Function<&Topology::world_size>, "topology.world_size: ranks"}},
      .metamethods = {{"__tostring", Function<&Topology::ToString>}, {"__eq", Function<IsSame>}},
      .to_data = Function<SizesOfAxes>,
      .help = "a topology: ranks on named axes"};
  return type;
}

const ObjectType& TypeOf<Grid>::Get() {
  static const ObjectType type{
      .name = "grid",
      .methods = GridMethods(),
      .properties = {{"rank", Function<&Grid::rank>, "grid.rank: the rank"},
                     {"stage_id", Function<&Grid::stage_id>,
                      "grid.stage_id: its coordinate on the pipe axis"},
                     {"data_parallel_id", Function<&Grid::data_parallel_id>,
                      "grid.data_parallel_id: its replica"},
                     {"model_parallel_id", Function<&Grid::model_parallel_id>,
                      "grid.model_parallel_id: its part of the layers"},
                     {"is_first_stage", Function<&Grid::is_first_stage>,
                      "grid.is_first_stage: true or false"},
                     {"is_last_stage", Function<&Grid::is_last_stage>,
                      "grid.is_last_stage: true or false"},
                     {"sizes", Function<Sizes>, "grid.sizes: of the axes"},
                     {"topology", Function<&Grid::topology>, "grid.topology: all ranks", nullptr,
                      GivenType<Topology>},
                     {"groups", Function<Groups>,
                      "grid.groups: the lists pipe, data, slice and model that the rank is in"},
                     {"p2p_groups", Function<&Grid::P2pGroups>,
                      "grid.p2p_groups: neighbours on the pipe axis"},
                     {"created", Function<&Grid::Created>,
                      "grid.created: every group, in the order in which all ranks create them"}},
      .metamethods = {{"__tostring", Function<ShowGrid>}},
      .help = "a grid: one rank's place in a topology, and its groups"};
  return type;
}

void AddTopology(lua_State* L) {
  const NamedFunction functions[] = {
      {"topology", FunctionOf<2, MakeTopology>,
       "strata.topology{pipe=2, data=2, model=1}: a grid of ranks\nalso strata.topology({\"pipe\", "
       "\"data\"}, {2, 2}) and strata.topology(12), which deals prime factors",
       nullptr, GivenType<Topology>}};
  SetFunctions(L, functions);
}

}  // namespace strata::lua
