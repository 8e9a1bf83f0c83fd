// strata.nn, strata.layer, strata.tied, strata.times, strata.cut, strata.skip and strata.join.

#include <algorithm>
#include <cctype>

#include "engine/base/text.h"
#include "lua/core/arguments.h"
#include "lua/core/bind.h"
#include "lua/core/core.h"
#include "lua/core/notes.h"
#include "lua/library/layer_object.h"
#include "lua/library/library.h"
#include "lua/library/own_layer.h"

namespace strata::lua {
namespace {

constexpr int kMaxTimes = 100000;

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

/// strata.layer{name=..., init=function(self, ...) end, reset=function(self) end,
/// forward=function(self, x) end}
LayerConstructor OwnLayer(lua_State* L) {
  if (!lua_istable(L, 1)) ThrowExpected(L, 1, "a table {name=..., init=..., forward=...}");
  const std::vector<std::string> known = {"name", "init", "reset", "forward"};
  const TableShape shape = ShapeOf(L, 1);
  if (shape.positions > 0) throw ConfigError("strata.layer takes name, init, reset and forward");
  for (const std::string& name : shape.names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw ConfigError(Str("strata.layer has no field \"", name, "\"", DidYouMean(name, known)));
  }
  LayerConstructor constructor;
  lua_getfield(L, 1, "name");
  if (lua_type(L, -1) != LUA_TSTRING || TextAt(L, -1).empty() || TextAt(L, -1) == "function") {
    throw ConfigError(Str("strata.layer: name must be the layer's type, such as \"RMS\"; it is ",
                          Describe(L, -1)));
  }
  constructor.name = TextAt(L, -1);
  constructor.init = FunctionField(L, 1, "init", false);
  constructor.forward = FunctionField(L, 1, "forward", true);
  const FunctionRef reset = FunctionField(L, 1, "reset", false);
  if (constructor.init.id < 0) {
    if (reset.id < 0) return constructor;
    throw ConfigError("strata.layer: reset needs an init, which makes what it sets");
  }
  KeepReset(L, constructor.init, constructor.forward, reset);
  if (reset.id < 0) return constructor;
  constructor.init.digest += reset.digest;  // the digest tells jobs apart
  return constructor;
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
LayerSpec Tied(lua_State* L) {
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
  const Value options =
      OptionsOf(Value::MakeMap(arguments.Named("strata.tied")), TiedFields(), "strata.tied");
  LayerSpec layer = raw.layer;
  layer.tied_key = key;
  layer.tied_weights = WeightNames(options["weight"]);
  if (options["forward"].is_function()) {
    (layer.scripted ? layer.forward : layer.tied_forward) = options["forward"].as_function();
  }
  return layer;
}

/// strata.times(n, f) returns the list {f(0), ..., f(n - 1)}.
Pushed Times(lua_State* L) {
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
  return {};
}

CutMark Cut(lua_State* L) {
  if (lua_gettop(L) > 0) throw ConfigError("strata.cut() takes no arguments");
  return {};
}

bool IsTraining(lua_State* L) {
  if (lua_gettop(L) > 0) throw ConfigError("strata.training() takes no arguments");
  return State::Core::Of(L).is_training();
}

int64_t TokenPosition(lua_State* L) {
  if (lua_gettop(L) > 0) throw ConfigError("strata.position() takes no arguments");
  return State::Core::Of(L).token_position();
}

/// The name in lower case and without underscores: equal for "LocalResponseNorm" and
/// "local_response_norm".
std::string Letters(const std::string& name) {
  std::string letters;
  for (const unsigned char c : name) {
    if (c != '_') letters += static_cast<char>(std::tolower(c));
  }
  return letters;
}

/// The hint for a class of torch.nn that is not here: what to use in its place. "" if nothing is
/// known.
std::string InsteadOf(lua_State* L, const std::string& name) {
  if (name == "Module") return "; layers of your own are made by strata.layer";
  if (name == "Parameter") return "; it is self:parameter{...} in a layer of your own";
  if (name.ends_with("List") || name.ends_with("Dict")) {
    return "; a table in self keeps what is in it: self.heads = {nn.Linear{4, 4}}";
  }
  for (const std::string& function : OperatorNames(L)) {
    if (Letters(function) != Letters(name)) continue;
    return name.ends_with("Loss")
               ? Str("; as a function: function(output, target) return F.", function,
                     "(output, target) end")
               : Str("; as a function: function(x) return F.", function, "(x, ...) end");
  }
  return "";
}

/// __index of nn for unknown names: throws ConfigError with a hint.
int RefuseLayer(lua_State* L) {
  const std::string name(TextArgument(L, 2, "a name"));
  std::vector<std::string> names = LayerTypeNames();
  names.emplace_back("init");
  std::string hint = DidYouMean(name, names, 0);
  const auto is_like = [&](const std::string& known) { return Letters(known) == Letters(name); };
  if (std::ranges::none_of(names, is_like)) {
    if (const std::string instead = InsteadOf(L, name); !instead.empty()) hint = instead;
  }
  throw ConfigError(Str("there is no nn.", name, hint));
}

}  // namespace

void AddLayers(lua_State* L) {
  lua_newtable(L);
  for (const std::string& name : LayerTypeNames()) {
    Push(L, LayerConstructor{"nn." + name, FindLayerType(name), {}, {}});
    lua_setfield(L, -2, name.c_str());
  }
  SetUnknownName(L, Bound<RefuseLayer>);
  NoteHelp(L, -1,
           "nn: layers and losses, with PyTorch's names, arguments, defaults and initial values");
  lua_setfield(L, -2, "nn");
  for (const char* name : {"skip", "join", "documents"}) {
    Push(L, LayerConstructor{Str("strata.", name), FindLayerType(name), {}, {}});
    lua_setfield(L, -2, name);
  }
  const NamedFunction functions[] = {
      {"layer", FunctionOf<1, OwnLayer>,
       "strata.layer{name=, init=function(self, ...), forward=function(self, x), "
       "reset=function(self)}: a layer type of your own\ninit makes what it holds: parameters, "
       "self.weight = self:parameter{dim, fill=1}, layers, self.fc = nn.Linear{dim, dim}, and "
       "state "
       "without gradients, self:buffer(\"mask\", tensor). forward calls the layers, self.fc(x). "
       "reset sets other initial values, nn.init.normal_(self.fc.weight, 0, 0.02). RMS{512} then "
       "makes a layer."},
      {"times", FunctionOf<2, Times>,
       "strata.times(n, f): the list {f(0), ..., f(n - 1)} of layers"},
      {"cut", Function<Cut>, "strata.cut(): marks a cut in the list of layers"},
      {"training", Function<IsTraining>,
       "strata.training(): in a layer's or a loss's function, whether it trains: false while the "
       "job evaluates"},
      {"position", Function<TokenPosition>,
       "strata.position(): in a layer's function, the place in its text of the first token that it "
       "gets: 0, but for the tokens that follow while a text is generated"},
      {"tied", Function<Tied>,
       "strata.tied{key, layer, weight=\"weight\", forward=function(layer, x)}: layers of one key "
       "share parameters"}};
  SetFunctions(L, functions);
}

}  // namespace strata::lua
