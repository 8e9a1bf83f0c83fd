// Layers as Lua values: constructing them, printing them, reading lists of them.
#include "lua/library/layer_object.h"

#include <optional>

#include "engine/base/text.h"
#include "lua/core/arguments.h"
#include "lua/core/bind.h"
#include "lua/core/core.h"
#include "lua/library/own_layer.h"

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

void Flatten(RawLayer layer, std::vector<LayerSpec>& out) {
  if (layer.kind == RawLayer::Kind::kCut) {
    throw ConfigError("strata.cut() marks cuts in the job's list of layers, not inside a layer");
  }
  if (layer.kind == RawLayer::Kind::kLayer) out.push_back(std::move(layer.layer));
  for (RawLayer& item : layer.list) Flatten(std::move(item), out);
}

/// The layers among the arguments of a container, which are all its positional arguments.
std::vector<LayerSpec> Children(lua_State* L, const Arguments& arguments,
                                const std::string& subject) {
  std::vector<LayerSpec> children;
  for (int i = 1; i <= arguments.positions(); ++i) {
    arguments.PushPosition(i);
    Flatten(ToRawLayer(L, -1, Str(subject, "'s layers")), children);
    lua_pop(L, 1);
  }
  return children;
}

LayerSpec BuiltIn(lua_State* L, const LayerConstructor& constructor, const Arguments& arguments) {
  const LayerType& type = *constructor.type;
  std::vector<LayerSpec> children;
  Value::List positions;
  if (type.holds_layers) {
    children = Children(L, arguments, type.name);
  } else {
    positions = arguments.Positional(type.name);
  }
  return MakeLayer(type.name, positions, arguments.Named(type.name), std::move(children),
                   State::Core::Of(L).Place(L));
}

LayerSpec Own(lua_State* L, const LayerConstructor& constructor, const Arguments& arguments) {
  LayerSpec layer;
  layer.type = constructor.name;
  layer.where = State::Core::Of(L).Place(L);
  layer.scripted = true;
  layer.init = constructor.init;
  layer.forward = constructor.forward;
  layer.args = Value::MakeMap();
  const Value::List positions = arguments.Positional(constructor.name);
  for (size_t i = 0; i < positions.size(); ++i) layer.args.Set(Str(i + 1), positions[i]);
  for (auto& [name, value] : arguments.Named(constructor.name)) {
    if (name == "name") {
      layer.name = value.as_string();
    } else {
      layer.args.Set(name, std::move(value));
    }
  }
  Declare(L, layer);
  return layer;
}

/// __call of a constructor: makes a layer.
Pushed CallConstructor(lua_State* L, const LayerConstructor& constructor) {
  const Arguments arguments(L, 2);
  Push(L, constructor.type ? BuiltIn(L, constructor, arguments) : Own(L, constructor, arguments));
  NoteMadeLayer(L);
  return {};
}

/// __call of a layer: an error, since a job's layers are only declared.
Pushed RefuseCall(lua_State*, const LayerSpec& layer) {
  if (IsLoss(layer)) {
    throw ConfigError(Str(layer.ToString(), " cannot be called here", LossHint(layer)));
  }
  throw ConfigError(Str(layer.ToString(),
                        " cannot be called here: keep it in the init of a layer, ",
                        "self.NAME = ", layer.scripted ? "" : "nn.", layer.type,
                        "{...}, and call self.NAME(x) in its forward"));
}

std::string ShowConstructor(const LayerConstructor& constructor) {
  return constructor.type
             ? LayerHelp(*constructor.type)
             : Str(constructor.name, " (a layer of the script's, ", constructor.forward.where, ")");
}

std::optional<std::string> TiedKey(const LayerSpec& layer) {
  return layer.tied_key.empty() ? std::nullopt : std::optional(layer.tied_key);
}

}  // namespace

const ObjectType& TypeOf<LayerSpec>::Get() {
  static const ObjectType type{
      .name = "layer",
      .properties = {{"type", Function<&LayerSpec::type>, "layer.type: \"Linear\""},
                     {"name", Function<&LayerSpec::name>, "layer.name: its path; \"\" = its index"},
                     {"tied", Function<TiedKey>, "layer.tied: the key of strata.tied, or nil"},
                     {"where", Function<&LayerSpec::where>, "layer.where: the script's line"},
                     {"args", Function<&LayerSpec::args>,
                      "layer.args: all its arguments, defaults included"},
                     {"parameters",
                      Function<[](const LayerSpec& layer) { return CountParameters(layer); }>,
                      "layer.parameters: elements of its parameters"}},
      .metamethods = {{"__tostring", Function<&LayerSpec::ToString>},
                      {"__call", Function<RefuseCall>}}};
  return type;
}

const ObjectType& TypeOf<LayerConstructor>::Get() {
  static const ObjectType type{.name = "layer type",
                               .metamethods = {{"__tostring", Function<ShowConstructor>},
                                               {"__call", Function<CallConstructor>}}};
  return type;
}

const ObjectType& TypeOf<CutMark>::Get() {
  static const ObjectType type{
      .name = "cut",
      .metamethods = {{"__tostring", Function<[](const CutMark&) { return "strata.cut()"; }>}}};
  return type;
}

RawLayer ToRawLayer(lua_State* L, int index, const std::string& what) {
  return RawLayerAt(L, index < 0 ? lua_gettop(L) + 1 + index : index, what, 0);
}

LayerSpec FunctionLayer(lua_State* L, int index) {
  LayerSpec layer;
  layer.type = "function";
  layer.scripted = true;
  layer.args = Value::MakeMap();
  layer.forward = ToFunctionRef(L, index);
  // A built-in function, such as F.relu, has no line of its own; the line that uses it is shown.
  layer.where = lua_iscfunction(L, index) ? State::Core::Of(L).Place(L) : layer.forward.where;
  layer.name = FunctionName(L, index);
  return layer;
}

}  // namespace strata::lua
