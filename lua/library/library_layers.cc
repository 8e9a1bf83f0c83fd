// strata.nn, strata.layer, strata.tied, strata.times, strata.cut, strata.skip and strata.join.

#include <algorithm>

#include "engine/base/text.h"
#include "lua/core/arguments.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/core/notes.h"
#include "lua/library/library.h"
#include "lua/values/layer_object.h"
#include "lua/values/own_layer.h"

namespace strata::lua {
namespace {

constexpr int kMaxTimes = 100000;

std::string Where(lua_State* L) { return State::Core::Of(L).Place(L); }

void Flatten(RawLayer layer, std::vector<LayerSpec>& out) {
  if (layer.kind == RawLayer::Kind::kCut) {
    throw ConfigError("strata.cut() marks cuts in the job's list of layers, not inside a layer");
  }
  if (layer.kind == RawLayer::Kind::kLayer) out.push_back(std::move(layer.layer));
  for (RawLayer& item : layer.list) Flatten(std::move(item), out);
}

/// The layers among the arguments of a container: all its positions.
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
  return MakeLayer(type.name, positions, arguments.Named(type.name), std::move(children), Where(L));
}

LayerSpec Own(lua_State* L, const LayerConstructor& constructor, const Arguments& arguments) {
  LayerSpec layer;
  layer.type = constructor.name;
  layer.where = Where(L);
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
  layer.script_parameters = DeclaredParameters(L, layer);
  return layer;
}

/// __call of a constructor: the layer.
int CallConstructor(lua_State* L) {
  const auto constructor = ObjectArgument<LayerConstructor>(L, 1);
  const Arguments arguments(L, 2);
  const bool built_in = constructor->type != nullptr;
  LayerSpec layer =
      built_in ? BuiltIn(L, *constructor, arguments) : Own(L, *constructor, arguments);
  PushObject(L, std::make_shared<LayerSpec>(std::move(layer)));
  return 1;
}

int ShowConstructor(lua_State* L) {
  const auto& constructor = Self<LayerConstructor>(L);
  PushText(L, constructor.type ? LayerHelp(*constructor.type)
                               : Str(constructor.name, " (a layer of the script's, ",
                                     constructor.forward.where, ")"));
  return 1;
}

int ShowLayer(lua_State* L) {
  PushText(L, Self<LayerSpec>(L).ToString());
  return 1;
}

int LayerTypeName(lua_State* L) {
  PushText(L, Self<LayerSpec>(L).type);
  return 1;
}

int LayerName(lua_State* L) {
  PushText(L, Self<LayerSpec>(L).name);
  return 1;
}

int LayerTied(lua_State* L) {
  const std::string& key = Self<LayerSpec>(L).tied_key;
  if (key.empty()) {
    lua_pushnil(L);
  } else {
    PushText(L, key);
  }
  return 1;
}

int LayerParameters(lua_State* L) {
  lua_pushnumber(L, static_cast<double>(CountParameters(Self<LayerSpec>(L))));
  return 1;
}

int LayerWhere(lua_State* L) {
  PushText(L, Self<LayerSpec>(L).where);
  return 1;
}

int LayerArguments(lua_State* L) {
  PushValue(L, Self<LayerSpec>(L).args);
  return 1;
}

int ShowCut(lua_State* L) {
  lua_pushliteral(L, "strata.cut()");
  return 1;
}

FunctionRef FunctionField(lua_State* L, int table, const char* name, bool required) {
  lua_getfield(L, table, name);
  if (lua_isnil(L, -1) && !required) {
    lua_pop(L, 1);
    return {};
  }
  if (!lua_isfunction(L, -1)) {
    throw ConfigError(Str("strata.layer: ", name, " must be a function, it is ", Describe(L, -1)));
  }
  FunctionRef function = ToFunctionRef(L, -1);
  lua_pop(L, 1);
  return function;
}

/// strata.layer{name=..., init=function(self, ...) end, forward=function(self, x) end}
int OwnLayer(lua_State* L) {
  if (!lua_istable(L, 1)) ThrowExpected(L, 1, "a table {name=..., init=..., forward=...}");
  const std::vector<std::string> known = {"name", "init", "forward"};
  const TableShape shape = ShapeOf(L, 1);
  if (shape.positions > 0) throw ConfigError("strata.layer takes name, init and forward");
  for (const std::string& name : shape.names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw ConfigError(Str("strata.layer has no field \"", name, "\"", DidYouMean(name, known)));
  }
  auto constructor = std::make_shared<LayerConstructor>();
  lua_getfield(L, 1, "name");
  if (lua_type(L, -1) != LUA_TSTRING || TextAt(L, -1).empty() || TextAt(L, -1) == "function") {
    throw ConfigError(Str("strata.layer: name must be the layer's type, such as \"RMS\"; it is ",
                          Describe(L, -1)));
  }
  constructor->name = TextAt(L, -1);
  constructor->init = FunctionField(L, 1, "init", false);
  constructor->forward = FunctionField(L, 1, "forward", true);
  PushObject(L, std::move(constructor));
  return 1;
}

const FieldTable& TiedFields() {
  static const FieldTable fields = {
      Field::Any("weight", "the shared parameter's name, or a list of names").Default("weight"),
      Field::Function("forward", "function(layer, x) in place of the layer's own").Optional()};
  return fields;
}

std::vector<std::string> WeightNames(const Value& value) {
  const Value::List names = value.is_list() ? value.as_list() : Value::List{value};
  std::vector<std::string> weights;
  for (const Value& name : names) {
    const bool fits =
        name.is_string() && std::ranges::find(weights, name.as_string()) == weights.end();
    if (!fits) {
      throw ConfigError(
          Str("strata.tied: weight must be a parameter's name or a list of different ",
              "names, got ", value.ToLua()));
    }
    weights.push_back(name.as_string());
  }
  if (weights.empty()) throw ConfigError("strata.tied: weight names no parameter");
  return weights;
}

/// strata.tied{"key", layer [, weight="weight"] [, forward=function(layer, x) end]}
int Tied(lua_State* L) {
  const Arguments arguments(L, 1);
  if (arguments.positions() != 2) {
    throw ConfigError("strata.tied expects a key and a layer: strata.tied{\"embed\", nn.X{...}}");
  }
  arguments.PushPosition(1);
  const std::string key = TextArgument(L, lua_gettop(L), "strata.tied's key");
  if (key.empty()) throw ConfigError("strata.tied: the key is empty");
  arguments.PushPosition(2);
  const RawLayer raw = ToRawLayer(L, lua_gettop(L), "strata.tied's layer");
  if (raw.kind != RawLayer::Kind::kLayer || !raw.layer.tied_key.empty()) {
    throw ConfigError(Str("strata.tied{\"", key, "\"} ties one layer, got ", Describe(L, -1)));
  }
  const Value options = Canonicalize(
      TiedFields(),
      {.subject = "strata.tied", .noun = "option", .named = arguments.Named("strata.tied")});
  LayerSpec layer = raw.layer;
  layer.tied_key = key;
  layer.tied_weights = WeightNames(options["weight"]);
  if (options["forward"].is_function()) {
    (layer.scripted ? layer.forward : layer.tied_forward) = options["forward"].as_function();
  }
  PushObject(L, std::make_shared<LayerSpec>(std::move(layer)));
  return 1;
}

/// strata.times(n, f): the list {f(0), ..., f(n - 1)}.
int Times(lua_State* L) {
  const int64_t count = IntArgument(L, 1, "how many times");
  if (count < 0 || count > kMaxTimes) {
    throw ConfigError(Str("strata.times goes up to ", kMaxTimes, " times, not ", count));
  }
  CheckFunction(L, 2, "a function");
  lua_createtable(L, static_cast<int>(count), 0);
  for (int i = 0; i < count; ++i) {
    lua_pushvalue(L, 2);
    lua_pushinteger(L, i);
    CallNested(L, 1, 1);
    if (lua_isnil(L, -1)) throw ConfigError(Str("strata.times: the function gave nothing for ", i));
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

int Cut(lua_State* L) {
  if (lua_gettop(L) > 0) throw ConfigError("strata.cut() takes no arguments");
  PushObject(L, std::make_shared<CutMark>());
  return 1;
}

int IsTraining(lua_State* L) {
  if (lua_gettop(L) > 0) throw ConfigError("strata.training() takes no arguments");
  lua_pushboolean(L, State::Core::Of(L).is_training());
  return 1;
}

/// __index of nn: a name that it does not have.
int UnknownLayer(lua_State* L) {
  const std::string name = TextArgument(L, 2, "the name of a layer");
  throw ConfigError(Str("there is no nn.", name, DidYouMean(name, LayerTypeNames())));
}

}  // namespace

const ObjectType& TypeOf<LayerSpec>::Get() {
  static const ObjectType type{
      "layer",
      {},
      {{"type", Bound<LayerTypeName>, "layer.type: \"Linear\""},
       {"name", Bound<LayerName>, "layer.name: its path; \"\" = its index"},
       {"tied", Bound<LayerTied>, "layer.tied: the key of strata.tied, or nil"},
       {"where", Bound<LayerWhere>, "layer.where: the script's line"},
       {"args", Bound<LayerArguments>, "layer.args: all its arguments, defaults included"},
       {"parameters", Bound<LayerParameters>, "layer.parameters: elements of its parameters"}},
      {{"__tostring", Bound<ShowLayer>}}};
  return type;
}

const ObjectType& TypeOf<LayerConstructor>::Get() {
  static const ObjectType type{
      "layer type",
      {},
      {},
      {{"__tostring", Bound<ShowConstructor>}, {"__call", Bound<CallConstructor>}}};
  return type;
}

const ObjectType& TypeOf<CutMark>::Get() {
  static const ObjectType type{"cut", {}, {}, {{"__tostring", Bound<ShowCut>}}};
  return type;
}

void AddLayers(lua_State* L) {
  lua_newtable(L);
  for (const std::string& name : LayerTypeNames()) {
    PushObject(L, std::make_shared<LayerConstructor>(
                      LayerConstructor{"nn." + name, FindLayerType(name), {}, {}}));
    lua_setfield(L, -2, name.c_str());
  }
  SetUnknownName(L, Bound<UnknownLayer>);
  NoteHelp(L, -1,
           "nn: layers and losses, with PyTorch's names, arguments, defaults and initial values");
  lua_setfield(L, -2, "nn");
  for (const char* name : {"skip", "join"}) {
    PushObject(L, std::make_shared<LayerConstructor>(
                      LayerConstructor{Str("strata.", name), FindLayerType(name), {}, {}}));
    lua_setfield(L, -2, name);
  }
  const NamedFunction functions[] = {
      {"layer", Bound<OwnLayer, 1>,
       "strata.layer{name=, init=function(self, ...), forward=function(self, x)}: a layer type of "
       "your own\ninit declares parameters, self.weight = self:parameter{dim, fill=1}; RMS{512} "
       "then makes a layer."},
      {"times", Bound<Times, 2>, "strata.times(n, f): the list {f(0), ..., f(n - 1)} of layers"},
      {"cut", Bound<Cut>, "strata.cut(): marks a cut in the list of layers"},
      {"training", Bound<IsTraining>,
       "strata.training(): in a layer's or a loss's function, whether it trains: false while the "
       "job evaluates"},
      {"tied", Bound<Tied>,
       "strata.tied{key, layer, weight=\"weight\", forward=function(layer, x)}: layers of one key "
       "share parameters"}};
  SetFunctions(L, functions);
}

}  // namespace strata::lua
