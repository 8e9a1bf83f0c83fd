#include "lua/values/layer_object.h"

#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"

namespace strata::lua {
namespace {

constexpr int kMaxNesting = 100;

RawLayer RawLayerAt(lua_State* L, int index, const std::string& what, int depth);

RawLayer RawList(lua_State* L, int table, const std::string& what, int depth) {
  if (depth > kMaxNesting) throw ConfigError(Str(what, ": lists are nested too deeply"));
  luaL_checkstack(L, 4, "lists are nested too deeply");
  const TableShape shape = ShapeOf(L, table);
  if (!shape.names.empty()) {
    throw ConfigError(Str(what, " is a list of layers and has no key \"", shape.names[0], "\""));
  }
  RawLayer list;
  list.kind = RawLayer::Kind::kList;
  for (int i = 1; i <= shape.positions; ++i) {
    lua_rawgeti(L, table, i);
    list.list.push_back(RawLayerAt(L, lua_gettop(L), Str(what, "[", i, "]"), depth + 1));
    lua_pop(L, 1);
  }
  return list;
}

RawLayer RawLayerAt(lua_State* L, int index, const std::string& what, int depth) {
  RawLayer raw;
  if (const auto layer = ObjectAt<LayerSpec>(L, index)) {
    raw.layer = *layer;
  } else if (ObjectAt<CutMark>(L, index)) {
    raw.kind = RawLayer::Kind::kCut;
  } else if (lua_isfunction(L, index)) {
    raw.layer = FunctionLayer(L, index);
  } else if (const auto constructor = ObjectAt<LayerConstructor>(L, index)) {
    throw ConfigError(Str(what, " is the bare ", constructor->name, "; write ", constructor->name,
                          "{} to get a layer of this type"));
  } else if (IsPlainTable(L, index)) {
    return RawList(L, index, what, depth);
  } else {
    throw ConfigError(Str(what, " must be a layer or a function, it is ", Describe(L, index)));
  }
  return raw;
}

}  // namespace

RawLayer ToRawLayer(lua_State* L, int index, const std::string& what) {
  return RawLayerAt(L, index < 0 ? lua_gettop(L) + 1 + index : index, what, 0);
}

LayerSpec FunctionLayer(lua_State* L, int index) {
  LayerSpec layer;
  layer.type = "function";
  layer.scripted = true;
  layer.args = Value::MakeMap();
  layer.forward = ToFunctionRef(L, index);
  // One of ours, such as F.relu, stands where it is used.
  layer.where = lua_iscfunction(L, index) ? State::Core::Of(L).Place(L) : layer.forward.where;
  layer.name = FunctionName(L, index);
  return layer;
}

}  // namespace strata::lua
