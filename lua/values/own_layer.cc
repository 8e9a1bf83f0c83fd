// A user's own layers: running init, and the names of their parameters.
#include "lua/values/own_layer.h"

#include <algorithm>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/spec/fields/fields.h"
#include "lua/core/bind.h"
#include "lua/core/core.h"

namespace strata::lua {
namespace {

constexpr std::string_view kTraining = "training";
constexpr size_t kMaxDepth = 20;
constexpr int64_t kMaxElements = int64_t{1} << 40;

/// What stands for a parameter while init runs without allocating.
struct Placeholder {
  std::vector<int64_t> shape;
};

/// One run of an init; self:parameter reaches it through an upvalue.
struct InitRun {
  const MakeParameter* make = nullptr;  ///< null once the run is over
  std::vector<ParameterDeclaration> made;
};

class RunScope {
 public:
  RunScope(InitRun& run, const MakeParameter& make) : run_(run) { run_.make = &make; }
  ~RunScope() { run_.make = nullptr; }

 private:
  InitRun& run_;
};

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

/// self:parameter{...}. Upvalues: the run, the list of what was made.
int MakeOwnParameter(lua_State* L) {
  const auto run = ObjectAt<InitRun>(L, lua_upvalueindex(1));
  if (!run->make) throw ConfigError("self:parameter belongs into the layer's init");
  run->made.push_back(Declaration(L, 2));
  (*run->make)(L, run->made.back());
  lua_pushvalue(L, -1);
  lua_rawseti(L, lua_upvalueindex(2), static_cast<int>(run->made.size()));
  return 1;
}

bool IsNamed(lua_State* L, int index, std::string_view name) {
  return lua_type(L, index) == LUA_TSTRING && name == lua_tostring(L, index);
}

/// __index of a self. Upvalue: its methods.
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
  lua_rawset(L, 1);
  return 0;
}

/// Pushes a new self with the methods of the table at the top of the stack, which is popped.
void PushSelfWithMethods(lua_State* L) {
  lua_newtable(L);
  lua_newtable(L);  // Its metatable.
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

/// Pushes the self of an init's run; `made` is the list of what was made.
void PushInitSelf(lua_State* L, const std::shared_ptr<InitRun>& run, int made) {
  lua_newtable(L);
  PushObject(L, run);
  lua_pushvalue(L, made);
  lua_pushcclosure(L, Bound<MakeOwnParameter>, 2);
  lua_setfield(L, -2, "parameter");
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

bool IsPosition(const std::string& step) {
  return step.find_first_not_of("0123456789") == std::string::npos;
}

/// Finds the values of the list `made` in `self`. Their names are paths, so that none may stand
/// under a name with a dot, or a number written as text.
class Namer {
 public:
  Namer(lua_State* L, int made) : L_(L), made_(made), names_(lua_objlen(L, made)) {}

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

  std::vector<std::string> Names() const {
    for (const std::string& name : names_) {
      if (name.empty()) {
        throw ConfigError(
            "init must keep each parameter under a name: self.weight = self:parameter{...}");
      }
    }
    return names_;
  }

 private:
  /// The field's value is at the top of the stack; pops it.
  void VisitField(const std::string& name) {
    const int value = lua_gettop(L_);
    if (lua_istable(L_, value)) Visit(value, name + ".");
    for (size_t i = 0; i < names_.size(); ++i) {
      lua_rawgeti(L_, made_, static_cast<int>(i) + 1);
      const bool same = lua_rawequal(L_, -1, value);
      lua_pop(L_, 1);
      if (!same) continue;
      if (!path_.empty()) RefusePath();
      if (!names_[i].empty()) {
        throw ConfigError(Str("init keeps one parameter as ", names_[i], " and as ", name));
      }
      names_[i] = name;
    }
    lua_settop(L_, value - 1);
  }

  [[noreturn]] void RefusePath() const {
    const size_t dot = path_.find('.');
    throw ConfigError(Str("init keeps a parameter under the name \"", path_, "\", but ",
                          dot == std::string::npos
                              ? Str("numbers are positions: self[1] = ... is parameter 0")
                              : Str("dots join names: self.", path_.substr(0, dot), " = {",
                                    path_.substr(dot + 1), " = ...} is parameter ", path_)));
  }

  lua_State* L_;
  int made_;
  std::string path_;  ///< the name in which a visit is and which is no name of a parameter
  std::vector<std::string> names_;
  std::vector<const void*> inside_;  ///< the tables around: self.me = self names nothing twice
};

/// Pushes a step of a parameter's name as a key of Lua.
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

std::vector<OwnParameter> RunInit(lua_State* L, const LayerSpec& layer, const MakeParameter& make) {
  auto run = std::make_shared<InitRun>();
  const RunScope scope(*run, make);
  lua_newtable(L);
  const int made = lua_gettop(L);
  PushInitSelf(L, run, made);
  const int self = made + 1;
  if (layer.init.id >= 0) {
    int arguments = 0;
    PushFunction(L, layer.init);
    lua_pushvalue(L, self);
    PushArguments(L, layer.args, arguments);
    CallNested(L, arguments + 1, 0);
  }
  Namer namer(L, made);
  namer.Visit(self, "");
  lua_remove(L, made);

  std::vector<OwnParameter> parameters;
  const std::vector<std::string> names = namer.Names();
  for (size_t i = 0; i < names.size(); ++i) parameters.push_back({names[i], run->made[i]});
  return parameters;
}

void PushSelf(lua_State* L) {
  lua_newtable(L);
  PushSelfWithMethods(L);
}

std::vector<ParameterSpec> DeclaredParameters(lua_State* L, const LayerSpec& layer) {
  const MakeParameter placeholder = [](lua_State* L, const ParameterDeclaration& declaration) {
    PushObject(L, std::make_shared<Placeholder>(Placeholder{declaration.shape}));
  };
  std::vector<ParameterSpec> specs;
  for (OwnParameter& parameter : RunInit(L, layer, placeholder)) {
    specs.push_back({std::move(parameter.name), std::move(parameter.declaration.shape)});
  }
  lua_pop(L, 1);
  return specs;
}

void SetOwnParameter(lua_State* L, int index, const std::string& name) {
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

}  // namespace strata::lua
