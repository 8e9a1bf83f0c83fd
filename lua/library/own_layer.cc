// Layers made by the user. RunInit() runs init with a fresh `self` and records each parameter,
// buffer and layer that it makes. Then the Namer walks over the tables in `self`, depth first,
// and gives each recorded value the path where it finds it. That path is the name that
// checkpoints use. The cost is the number of fields in `self` times the number of values made.
#include "lua/library/own_layer.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/text.h"
#include "engine/layers/layer_types.h"
#include "lua/core/bind.h"
#include "lua/core/core.h"
#include "lua/library/layer_object.h"

namespace strata::lua {
namespace {

constexpr std::string_view kTraining = "training";
constexpr char kResets[] = "strata.resets";  // registry: PushResetKey() -> reset, or false
constexpr size_t kMaxDepth = 20;
constexpr int64_t kMaxElements = int64_t{1} << 40;

/// Pairs of a loss of nn and the function of F that computes the same.
using LossFunction = std::pair<std::string_view, std::string_view>;
constexpr LossFunction kLossFunctions[] = {
    {"CrossEntropyLoss", "cross_entropy"},
    {"NLLLoss", "nll_loss"},
    {"MSELoss", "mse_loss"},
    {"L1Loss", "l1_loss"},
    {"SmoothL1Loss", "smooth_l1_loss"},
    {"HuberLoss", "huber_loss"},
    {"BCELoss", "binary_cross_entropy"},
    {"BCEWithLogitsLoss", "binary_cross_entropy_with_logits"},
    {"KLDivLoss", "kl_div"},
    {"PoissonNLLLoss", "poisson_nll_loss"},
    {"GaussianNLLLoss", "gaussian_nll_loss"},
    {"CTCLoss", "ctc_loss"},
    {"TripletMarginLoss", "triplet_margin_loss"},
    {"CosineEmbeddingLoss", "cosine_embedding_loss"},
};

/// The value of a parameter while init runs without allocating.
struct Placeholder {
  std::vector<int64_t> shape;
};

/// The state of one run of an init. self:parameter reaches it through an upvalue, and constructors
/// of layers through `running`.
struct InitRun {
  const MakeParameter* make = nullptr;  ///< null once the run is over
  int list = LUA_NOREF;                 ///< registry reference of the list of values it made
  std::vector<OwnMember> made;          ///< a description of each of these values
};

thread_local InitRun* running = nullptr;

class RunScope {
 public:
  RunScope(lua_State* L, InitRun& run, const MakeParameter& make)
      : L_(L), run_(run), outer_(std::exchange(running, &run)) {
    run_.make = &make;
    lua_newtable(L);
    run_.list = luaL_ref(L, LUA_REGISTRYINDEX);
  }
  ~RunScope() {
    luaL_unref(L_, LUA_REGISTRYINDEX, run_.list);
    run_.make = nullptr;
    running = outer_;
  }
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;

 private:
  lua_State* L_;
  InitRun& run_;
  InitRun* const outer_;
};

/// Records a value that the run made. The value is at the top of the stack and stays there.
void Note(lua_State* L, InitRun& run, OwnMember member) {
  run.made.push_back(std::move(member));
  lua_rawgeti(L, LUA_REGISTRYINDEX, run.list);
  lua_pushvalue(L, -2);
  lua_rawseti(L, -2, static_cast<int>(run.made.size()));
  lua_pop(L, 1);
}

/// Pushes the key of a type's reset: the ids of its functions.
void PushResetKey(lua_State* L, const FunctionRef& init, const FunctionRef& forward) {
  const std::string key = Str(init.id, " ", forward.id);
  lua_pushlstring(L, key.data(), key.size());
}

}  // namespace

template <>
struct TypeOf<Placeholder> {
  static const ObjectType& Get();
};
template <>
struct TypeOf<InitRun> {
  static const ObjectType& Get() {
    static const ObjectType type{.name = "init"};
    return type;
  }
};

namespace {

std::string ShowPlaceholder(const Placeholder& self) {
  return "parameter " + FormatShape(self.shape);
}

int64_t Size(lua_State* L, int index) {
  const int64_t size = IntArgument(L, index, "the sizes of the parameter's dims");
  if (size < 0) throw ConfigError(Str("a parameter's dim cannot have size ", size));
  return size;
}

ParameterDeclaration Declaration(lua_State* L, int table) {
  if (!lua_istable(L, table)) ThrowExpected(L, table, "self:parameter{dim, ..., fill=0}");
  const std::vector<std::string> known = {"fill", "init"};
  const TableShape shape = ShapeOf(L, table);
  ParameterDeclaration declaration;
  int64_t elements = 1;
  for (int i = 1; i <= shape.positions; ++i) {
    lua_rawgeti(L, table, i);
    declaration.shape.push_back(Size(L, -1));
    lua_pop(L, 1);
    if (__builtin_mul_overflow(elements, declaration.shape.back(), &elements) ||
        elements > kMaxElements) {
      throw ConfigError("a parameter of this size fits no machine");
    }
  }
  for (const std::string& name : shape.names) {
    lua_getfield(L, table, name.c_str());
    if (name == "fill") {
      declaration.fill = NumberArgument(L, -1, "a number to fill the parameter with");
    } else if (name == "init") {
      CheckFunction(L, -1, "init=function(tensor)");
      declaration.init = ToFunctionRef(L, -1);
    } else {
      throw ConfigError(Str("self:parameter has no \"", name, "\"", DidYouMean(name, known)));
    }
    lua_pop(L, 1);
  }
  return declaration;
}

/// The run to which the called self:NAME belongs. Upvalue: the run.
std::shared_ptr<InitRun> RunOf(lua_State* L, const char* name) {
  auto run = ObjectAt<InitRun>(L, lua_upvalueindex(1));
  if (!run->make) throw ConfigError(Str("self:", name, " belongs into the layer's init"));
  return run;
}

/// self:parameter{...}
int MakeOwnParameter(lua_State* L) {
  const auto run = RunOf(L, "parameter");
  OwnMember member{.declaration = Declaration(L, 2)};
  (*run->make)(L, member.declaration);
  Note(L, *run, std::move(member));
  return 1;
}

bool IsPosition(const std::string& step) {
  return step.find_first_not_of("0123456789") == std::string::npos;
}

/// self:buffer(name, tensor) sets self.NAME to the tensor.
int MakeOwnBuffer(lua_State* L) {
  const auto run = RunOf(L, "buffer");
  const std::string name = TextArgument(L, 2, "the buffer's name");
  if (IsPosition(name) || name.find('.') != name.npos) {
    throw ConfigError(
        Str("self:buffer takes a field's name, such as \"mask\", not \"", name, "\""));
  }
  if (ObjectTypeName(L, 3) != "tensor") ThrowExpected(L, 3, "the buffer's tensor");
  OwnMember member{.kind = OwnMember::Kind::kBuffer};
  lua_getfield(L, 3, "shape");
  member.declaration.shape = ToValue(L, -1, "the buffer's shape").as_ints();
  lua_getfield(L, 3, "dtype");
  member.dtype = ParseDType(TextArgument(L, -1, "the buffer's dtype"));
  lua_pushvalue(L, 3);
  Note(L, *run, std::move(member));
  lua_setfield(L, 1, name.c_str());
  lua_pushvalue(L, 3);
  return 1;
}

bool IsNamed(lua_State* L, int index, std::string_view name) {
  return lua_type(L, index) == LUA_TSTRING && name == lua_tostring(L, index);
}

/// __index of a self. Upvalue: the table of its methods.
int FieldOfSelf(lua_State* L) {
  if (IsNamed(L, 2, kTraining)) {
    lua_pushboolean(L, State::Core::Of(L).is_training());
  } else {
    lua_pushvalue(L, 2);
    lua_rawget(L, lua_upvalueindex(1));
  }
  return 1;
}

int SetFieldOfSelf(lua_State* L) {
  if (IsNamed(L, 2, kTraining)) {
    throw ConfigError(
        "self.training says whether the layer trains, and cannot be set; choose another name");
  }
  if (!running && ObjectAt<LayerSpec>(L, 3)) {
    throw ConfigError("a layer is made and kept in init; forward only calls it");
  }
  lua_rawset(L, 1);
  return 0;
}

/// Pops a table of methods and pushes a new self with these methods.
void PushSelfWithMethods(lua_State* L) {
  lua_newtable(L);
  lua_newtable(L);  // its metatable
  lua_pushvalue(L, -3);
  lua_pushcclosure(L, Bound<FieldOfSelf>, 1);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, Bound<SetFieldOfSelf>);
  lua_setfield(L, -2, "__newindex");
  lua_pushliteral(L, "layer");
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  lua_remove(L, -2);
}

/// Pushes the self for a run of an init.
void PushInitSelf(lua_State* L, const std::shared_ptr<InitRun>& run) {
  lua_newtable(L);
  constexpr std::pair<const char*, lua_CFunction> kMakers[] = {
      {"parameter", Bound<MakeOwnParameter>}, {"buffer", Bound<MakeOwnBuffer>}};
  for (const auto& [name, function] : kMakers) {
    PushObject(L, run);
    lua_pushcclosure(L, function, 1);
    lua_setfield(L, -2, name);
  }
  PushSelfWithMethods(L);
}

void PushArguments(lua_State* L, const Value& args, int& count) {
  const Call call = CallOf(args);
  for (const Value& value : call.positional) PushValue(L, value);
  count = static_cast<int>(call.positional.size());
  if (call.named.empty()) return;
  PushValue(L, Value::MakeMap(call.named));
  ++count;
}

const char* KindName(OwnMember::Kind kind) {
  if (kind == OwnMember::Kind::kLayer) return "layer";
  return kind == OwnMember::Kind::kBuffer ? "buffer" : "parameter";
}

/// Throws ConfigError if the layer cannot be a member of another layer.
void CheckKept(const LayerSpec& layer, const std::string& name) {
  if (IsLoss(layer)) {
    throw ConfigError(
        Str("self.", name, ": ", layer.type, " is a loss, not a layer", LossHint(layer)));
  }
  if (!layer.tied_key.empty()) {
    throw ConfigError(Str("self.", name, ": strata.tied{\"", layer.tied_key,
                          "\"} stands in the job's list of layers, not inside a layer"));
  }
}

/// Finds the values of the list `made` in `self` and names them. A name is a path of fields. So no
/// value may be stored under a key with a dot, or under a number written as text.
class Namer {
 public:
  Namer(lua_State* L, int list, std::vector<OwnMember>& made) : L_(L), list_(list), made_(made) {}

  void Visit(int table, const std::string& prefix) {
    const void* self = lua_topointer(L_, table);
    const bool is_around = std::find(inside_.begin(), inside_.end(), self) != inside_.end();
    if (is_around || inside_.size() > kMaxDepth) return;
    luaL_checkstack(L_, 8, "self is nested too deeply");
    inside_.push_back(self);
    const TableShape shape = ShapeOf(L_, table);
    for (int i = 1; i <= shape.positions; ++i) {
      lua_rawgeti(L_, table, i);
      VisitField(Str(prefix, i - 1));
    }
    for (const std::string& name : shape.names) {
      const bool is_path = IsPosition(name) || name.find('.') != std::string::npos;
      const bool begins = is_path && path_.empty();
      if (begins) path_ = name;
      PushText(L_, name);
      lua_rawget(L_, table);
      VisitField(prefix + name);
      if (begins) path_.clear();
    }
    inside_.pop_back();
  }

 private:
  /// Visits the field whose value is at the top of the stack, and pops it.
  void VisitField(const std::string& name) {
    const int value = lua_gettop(L_);
    if (lua_istable(L_, value)) Visit(value, name + ".");
    bool found = false;
    for (size_t i = 0; i < made_.size(); ++i) {
      lua_rawgeti(L_, list_, static_cast<int>(i) + 1);
      const bool same = lua_rawequal(L_, -1, value);
      lua_pop(L_, 1);
      if (!same) continue;
      found = true;
      Name(made_[i], name);
    }
    if (!found) CheckOther(value, name);
    lua_settop(L_, value - 1);
  }

  void Name(OwnMember& member, const std::string& name) const {
    const char* kind = KindName(member.kind);
    if (!path_.empty()) RefusePath(kind);
    if (!member.name.empty()) {
      throw ConfigError(Str("init keeps one ", kind, " as ", member.name, " and as ", name));
    }
    member.name = name;
    if (member.kind == OwnMember::Kind::kLayer) CheckKept(member.layer, name);
    member.layer.name = name;
  }

  /// Checks a value that init did not make.
  void CheckOther(int value, const std::string& name) const {
    if (const auto layer = ObjectAt<LayerSpec>(L_, value)) {
      CheckKept(*layer, name);
      throw ConfigError(Str("init keeps ", layer->ToString(), " as ", name,
                            ", which was made outside of it; make it in init"));
    }
    if (const auto type = ObjectAt<LayerConstructor>(L_, value)) {
      throw ConfigError(Str("self.", name, " is the bare ", type->name, "; write ", type->name,
                            "{} to get a layer of this type"));
    }
  }

  [[noreturn]] void RefusePath(const char* kind) const {
    const size_t dot = path_.find('.');
    throw ConfigError(Str("init keeps a ", kind, " under the name \"", path_, "\", but ",
                          dot == std::string::npos
                              ? Str("numbers are positions: self[1] = ... is ", kind, " 0")
                              : Str("dots join names: self.", path_.substr(0, dot), " = {",
                                    path_.substr(dot + 1), " = ...} is ", kind, " ", path_)));
  }

  lua_State* L_;
  int list_;
  std::vector<OwnMember>& made_;
  std::string path_;  ///< a key on the current path that cannot be part of a parameter's name
  std::vector<const void*> inside_;  ///< the enclosing tables; self.me = self is not followed
};

/// Keeps the members stored in self. Layers without a name are inside a Sequential, which keeps
/// them.
std::vector<OwnMember> WithNames(std::vector<OwnMember> made) {
  std::erase_if(made, [](const OwnMember& member) {
    if (!member.name.empty()) return false;
    if (member.kind == OwnMember::Kind::kLayer) return true;
    throw ConfigError(Str("init must keep each ", KindName(member.kind),
                          " under a name: self.weight = self:parameter{...}"));
  });
  return made;
}

/// Pushes one step of a member's name as a Lua key.
void PushKey(lua_State* L, const std::string& step) {
  if (IsPosition(step)) {
    lua_pushinteger(L, std::stoi(step) + 1);
  } else {
    PushText(L, step);
  }
}

}  // namespace

const ObjectType& TypeOf<Placeholder>::Get() {
  static const ObjectType type{.name = "parameter",
                               .properties = {{"shape", Function<&Placeholder::shape>}},
                               .metamethods = {{"__tostring", Function<ShowPlaceholder>}}};
  return type;
}

std::vector<OwnMember> RunInit(lua_State* L, const LayerSpec& layer, const MakeParameter& make) {
  auto run = std::make_shared<InitRun>();
  const RunScope scope(L, *run, make);
  PushInitSelf(L, run);
  const int self = lua_gettop(L);
  if (layer.init.id >= 0) {
    int arguments = 0;
    PushFunction(L, layer.init);
    lua_pushvalue(L, self);
    PushArguments(L, layer.args, arguments);
    CallNested(L, arguments + 1, 0);
  }
  lua_rawgeti(L, LUA_REGISTRYINDEX, run->list);
  Namer namer(L, self + 1, run->made);
  namer.Visit(self, "");
  lua_settop(L, self);
  return WithNames(std::move(run->made));
}

void NoteMadeLayer(lua_State* L) {
  if (!running) return;
  Note(L, *running, {.kind = OwnMember::Kind::kLayer, .layer = *ObjectAt<LayerSpec>(L, -1)});
}

void PushSelf(lua_State* L) {
  lua_newtable(L);
  PushSelfWithMethods(L);
}

void Declare(lua_State* L, LayerSpec& layer) {
  const MakeParameter placeholder = [](lua_State* L, const ParameterDeclaration& declaration) {
    PushObject(L, std::make_shared<Placeholder>(Placeholder{declaration.shape}));
  };
  std::vector<ParameterSpec> own, buffers, inside;
  for (OwnMember& member : RunInit(L, layer, placeholder)) {
    if (member.kind == OwnMember::Kind::kLayer) {
      for (ParameterSpec& spec : ParametersOf(member.layer)) {
        spec.name = Str(member.name, ".", spec.name);
        inside.push_back(std::move(spec));
      }
      layer.children.push_back(std::move(member.layer));
      continue;
    }
    const bool is_buffer = member.kind == OwnMember::Kind::kBuffer;
    (is_buffer ? buffers : own)
        .push_back(
            {std::move(member.name), std::move(member.declaration.shape), member.dtype, is_buffer});
  }
  lua_pop(L, 1);
  layer.script_parameters = std::move(own);
  for (auto* more : {&buffers, &inside}) {
    std::ranges::move(*more, std::back_inserter(layer.script_parameters));
  }
}

void SetOwnMember(lua_State* L, int index, const std::string& name) {
  lua_pushvalue(L, index);
  const std::vector<std::string> path = Split(name, '.');
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    PushKey(L, path[i]);
    lua_rawget(L, -2);
    if (!lua_istable(L, -1)) {
      lua_pop(L, 1);
      PushKey(L, path[i]);
      lua_newtable(L);
      lua_pushvalue(L, -1);
      lua_insert(L, -3);
      lua_rawset(L, -4);
    }
    lua_remove(L, -2);
  }
  PushKey(L, path.back());
  lua_pushvalue(L, -3);
  lua_rawset(L, -3);
  lua_pop(L, 2);
}

void PushOwnMember(lua_State* L, int index, const std::string& name) {
  lua_pushvalue(L, index);
  for (const std::string& step : Split(name, '.')) {
    if (lua_istable(L, -1)) {
      PushKey(L, step);
      lua_rawget(L, -2);
    } else {
      lua_pushnil(L);
    }
    lua_remove(L, -2);
  }
}

bool IsLoss(const LayerSpec& layer) {
  const LayerType* type = layer.scripted ? nullptr : FindLayerType(layer.type);
  return type && type->is_loss;
}

std::string LossHint(const LayerSpec& loss) {
  const auto* const found =
      std::ranges::find(kLossFunctions, std::string_view(loss.type), &LossFunction::first);
  if (found == std::end(kLossFunctions)) return "";
  return Str("; F.", found->second, "(...) is the same as a function");
}

void KeepReset(lua_State* L, const FunctionRef& init, const FunctionRef& forward,
               const FunctionRef& reset) {
  luaL_newmetatable(L, kResets);
  PushResetKey(L, init, forward);
  if (reset.id >= 0) {
    PushFunction(L, reset);
  } else {
    lua_pushboolean(L, false);
  }
  lua_pushvalue(L, -2);
  lua_rawget(L, -4);
  const bool is_taken = !lua_isnil(L, -1) && !lua_rawequal(L, -1, -2);
  lua_pop(L, 1);
  if (is_taken) {
    throw ConfigError(
        "strata.layer: another type has the same init and forward and another reset, or none; "
        "give each type functions of its own");
  }
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

bool PushReset(lua_State* L, const FunctionRef& init, const FunctionRef& forward) {
  luaL_newmetatable(L, kResets);
  PushResetKey(L, init, forward);
  lua_rawget(L, -2);
  lua_remove(L, -2);
  if (lua_isfunction(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

}  // namespace strata::lua
