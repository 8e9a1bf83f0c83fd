// C++ objects as Lua values. The metatable of a type stores the ObjectType, its methods and its
// properties.
#include "lua/core/object.h"

#include <algorithm>

#include "engine/base/text.h"
#include "lua/core/binding.h"

namespace strata::lua {
namespace {

// Fields that we add to a metatable.
constexpr char kType[] = "type";  // the ObjectType as light userdata, which scripts cannot make
constexpr char kMethods[] = "methods";
constexpr char kProperties[] = "properties";

std::string RegistryName(const ObjectType& type) { return "strata." + type.name; }

/// Pushes the metatable of the userdata or type at `index` and returns its ObjectType. Returns null
/// and pushes nothing for other values.
const ObjectType* PushType(lua_State* L, int index) {
  if (lua_istable(L, index)) {
    lua_pushvalue(L, index);
  } else if (lua_type(L, index) != LUA_TUSERDATA || !lua_getmetatable(L, index)) {
    return nullptr;
  }
  lua_pushstring(L, kType);
  lua_rawget(L, -2);
  const bool is_type = lua_type(L, -1) == LUA_TLIGHTUSERDATA;
  const auto* type = is_type ? static_cast<const ObjectType*>(lua_touserdata(L, -1)) : nullptr;
  lua_pop(L, type ? 1 : 2);
  return type;
}

const ObjectType* TypeAt(lua_State* L, int index) {
  const ObjectType* type = PushType(L, index);
  if (type) lua_pop(L, 1);
  return type;
}

[[noreturn]] void ThrowUnknownMember(lua_State* L) {
  const std::string name = lua_type(L, 2) == LUA_TSTRING ? std::string(TextAt(L, 2)) : "";
  if (name.empty()) throw ConfigError(Str(Describe(L, 1), " has no elements"));
  std::string hint = DidYouMean(name, ObjectMembers(L, 1));
  if (hint.empty()) hint = "; strata.help(x) lists what x has";
  throw ConfigError(Str(Describe(L, 1), " has no \"", name, "\"", hint));
}

/// Calls the property or lookup at the top of the stack with the object and the name.
int CallMember(lua_State* L) {
  lua_pushvalue(L, 1);
  lua_pushvalue(L, 2);
  lua_call(L, 2, 1);
  return 1;
}

/// __index: returns a method, the value of a property, or the result of the lookup. Upvalues:
/// methods, properties, lookup.
int Index(lua_State* L) {
  lua_pushvalue(L, 2);
  lua_rawget(L, lua_upvalueindex(1));
  if (!lua_isnil(L, -1)) return 1;
  lua_pushvalue(L, 2);
  lua_rawget(L, lua_upvalueindex(2));
  if (!lua_isnil(L, -1)) return CallMember(L);
  lua_pushvalue(L, lua_upvalueindex(3));
  if (lua_isnil(L, -1)) ThrowUnknownMember(L);
  CallMember(L);
  if (lua_isnil(L, -1)) ThrowUnknownMember(L);
  return 1;
}

int RefuseChange(lua_State* L) { throw ConfigError(Str(Describe(L, 1), " cannot be changed")); }

/// Pushes a table of functions, and stores it as `field` of the metatable.
void PushMembers(lua_State* L, int metatable, const char* field,
                 std::span<const NamedFunction> functions) {
  lua_newtable(L);
  SetFunctions(L, functions);
  lua_pushvalue(L, -1);
  lua_setfield(L, metatable, field);
}

void FillMetatable(lua_State* L, const ObjectType& type, lua_CFunction destroy) {
  const int metatable = lua_gettop(L);
  lua_pushlightuserdata(L, const_cast<ObjectType*>(&type));
  lua_setfield(L, metatable, kType);
  PushText(L, type.name);  // the result of getmetatable() in scripts
  lua_setfield(L, metatable, "__metatable");
  PushMembers(L, metatable, kMethods, type.methods);
  PushMembers(L, metatable, kProperties, type.properties);
  type.lookup ? lua_pushcfunction(L, type.lookup) : lua_pushnil(L);
  lua_pushcclosure(L, Bound<Index>, 3);
  lua_setfield(L, metatable, "__index");
  const NamedFunction always[] = {{"__gc", destroy}, {"__newindex", Bound<RefuseChange>}};
  SetFunctions(L, always);
  SetFunctions(L, type.metamethods);
}

void AppendNames(const std::vector<NamedFunction>& functions, std::vector<std::string>& names) {
  for (const NamedFunction& function : functions) names.emplace_back(function.name);
}

/// Appends the names that list_names returns for the object, or for the type, at `index`.
void AppendListed(lua_State* L, int index, const ObjectType& type,
                  std::vector<std::string>& names) {
  if (!type.list_names) return;
  lua_pushvalue(L, index);
  if (lua_istable(L, -1)) {
    lua_pop(L, 1);
    lua_pushnil(L);
  }
  lua_pushcfunction(L, type.list_names);
  lua_insert(L, -2);
  lua_call(L, 1, 1);
  for (size_t i = 1; i <= lua_objlen(L, -1); ++i) {
    lua_rawgeti(L, -1, static_cast<int>(i));
    names.emplace_back(TextAt(L, -1));
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

bool PushTypeMember(lua_State* L, int index, const char* kind, const std::string& name) {
  if (!PushType(L, index)) return false;
  lua_getfield(L, -1, kind);
  PushText(L, name);
  lua_rawget(L, -2);
  lua_replace(L, -3);
  lua_pop(L, 1);
  if (!lua_isnil(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

}  // namespace

void PushMetatable(lua_State* L, const ObjectType& type, lua_CFunction destroy) {
  if (luaL_newmetatable(L, RegistryName(type).c_str())) FillMetatable(L, type, destroy);
}

bool IsType(lua_State* L, int index) { return lua_istable(L, index) && TypeAt(L, index); }

bool PushTypeMethod(lua_State* L, int index, const std::string& name) {
  return PushTypeMember(L, index, kMethods, name);
}

bool PushTypeProperty(lua_State* L, int index, const std::string& name) {
  return PushTypeMember(L, index, kProperties, name);
}

bool PushTypeLookup(lua_State* L, int index, const std::string& name) {
  const ObjectType* type = TypeAt(L, index);
  if (!type || !type->lists_methods) return false;
  lua_pushcfunction(L, type->lookup);
  lua_pushnil(L);
  PushText(L, name);
  lua_call(L, 2, 1);
  return true;
}

bool IsObject(lua_State* L, int index, const ObjectType& type) {
  return luaL_testudata(L, index, RegistryName(type).c_str()) != nullptr;
}

std::string ObjectTypeName(lua_State* L, int index) {
  const ObjectType* type = TypeAt(L, index);
  return type ? type->name : luaL_typename(L, index);
}

bool PushObjectData(lua_State* L, int index) {
  const ObjectType* type = TypeAt(L, index);
  if (!type || !type->to_data) return false;
  lua_pushvalue(L, index);
  lua_pushcfunction(L, type->to_data);
  lua_insert(L, -2);
  lua_call(L, 1, 1);
  return true;
}

std::vector<std::string> ObjectMembers(lua_State* L, int index) {
  std::vector<std::string> names;
  const ObjectType* type = TypeAt(L, index);
  if (!type) return names;
  AppendNames(type->methods, names);
  AppendNames(type->properties, names);
  AppendListed(L, index, *type, names);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> ObjectMethods(lua_State* L, int index) {
  std::vector<std::string> names;
  const ObjectType* type = TypeAt(L, index);
  if (!type) return names;
  AppendNames(type->methods, names);
  if (type->lists_methods) AppendListed(L, index, *type, names);
  std::sort(names.begin(), names.end());
  return names;
}

std::string ObjectHelp(lua_State* L, int index) {
  const ObjectType* type = TypeAt(L, index);
  return type ? type->help : "";
}

std::string ObjectMemberHelp(lua_State* L, int index, const std::string& name) {
  const ObjectType* type = TypeAt(L, index);
  if (!type) return "";
  for (const auto* functions : {&type->methods, &type->properties}) {
    for (const NamedFunction& function : *functions) {
      if (function.name == name && *function.help) return function.help;
    }
  }
  if (!type->describe) return "";
  lua_pushvalue(L, index);
  lua_pushcfunction(L, type->describe);
  lua_insert(L, -2);
  PushText(L, name);
  lua_call(L, 2, 1);
  std::string help = lua_type(L, -1) == LUA_TSTRING ? std::string(TextAt(L, -1)) : "";
  lua_pop(L, 1);
  return help;
}

}  // namespace strata::lua
