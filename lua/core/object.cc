#include "lua/core/object.h"

#include <algorithm>

#include "engine/base/text.h"
#include "lua/core/notes.h"

namespace strata::lua {
namespace {

// Fields of a metatable that are ours: the type's name and its members.
constexpr char kName[] = "name";
constexpr char kMethods[] = "methods";
constexpr char kProperties[] = "properties";
constexpr char kListNames[] = "list_names";
constexpr char kToData[] = "to_data";
constexpr char kHelp[] = "help";
constexpr char kDescribe[] = "describe";
constexpr char kListsMethods[] = "lists_methods";
constexpr char kLookup[] = "lookup";

std::string RegistryName(std::string_view type) { return Str("strata.", type); }

[[noreturn]] void ThrowUnknownMember(lua_State* L) {
  const std::string name = lua_type(L, 2) == LUA_TSTRING ? std::string(TextAt(L, 2)) : "";
  if (name.empty()) throw ConfigError(Str("a ", ObjectTypeName(L, 1), " has no elements"));
  throw ConfigError(Str("a ", ObjectTypeName(L, 1), " has no \"", name, "\"",
                        DidYouMean(name, ObjectMembers(L, 1))));
}

/// Calls the property or look-up at the top of the stack with the object and the name.
int CallMember(lua_State* L) {
  lua_pushvalue(L, 1);
  lua_pushvalue(L, 2);
  lua_call(L, 2, 1);
  return 1;
}

/// __index: a method, the value of a property, or what the look-up gives. Upvalues: methods,
/// properties, look-up.
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

int RefuseChange(lua_State* L) {
  throw ConfigError(Str("a ", ObjectTypeName(L, 1), " cannot be changed"));
}

void SetTable(lua_State* L, const char* field, std::span<const NamedFunction> functions) {
  lua_newtable(L);
  SetFunctions(L, functions);
  lua_setfield(L, -2, field);
}

void PushOrNil(lua_State* L, lua_CFunction function) {
  if (function) {
    lua_pushcfunction(L, function);
  } else {
    lua_pushnil(L);
  }
}

void FillMetatable(lua_State* L, const ObjectType& type, lua_CFunction destroy) {
  PushText(L, type.name);
  lua_setfield(L, -2, kName);
  PushText(L, type.name);  // What getmetatable() gives to scripts.
  lua_setfield(L, -2, "__metatable");
  SetTable(L, kMethods, type.methods);
  SetTable(L, kProperties, type.properties);
  PushOrNil(L, type.list_names);
  lua_setfield(L, -2, kListNames);
  PushOrNil(L, type.to_data);
  lua_setfield(L, -2, kToData);
  PushText(L, type.help);
  lua_setfield(L, -2, kHelp);
  PushOrNil(L, type.describe);
  lua_setfield(L, -2, kDescribe);
  lua_pushboolean(L, type.lists_methods);
  lua_setfield(L, -2, kListsMethods);
  PushOrNil(L, type.lists_methods ? type.lookup : nullptr);
  lua_setfield(L, -2, kLookup);
  lua_getfield(L, -1, kMethods);
  lua_getfield(L, -2, kProperties);
  PushOrNil(L, type.lookup);
  lua_pushcclosure(L, Bound<Index>, 3);
  lua_setfield(L, -2, "__index");
  const NamedFunction always[] = {{"__gc", destroy}, {"__newindex", Bound<RefuseChange>}};
  SetFunctions(L, always);
  SetFunctions(L, type.metamethods);
}

/// Pushes the metatable of the userdata at `index`, or the type that is there.
bool PushType(lua_State* L, int index) {
  if (lua_type(L, index) == LUA_TUSERDATA) return lua_getmetatable(L, index) != 0;
  if (!IsType(L, index)) return false;
  lua_pushvalue(L, index);
  return true;
}

/// Pushes a field of the metatable of the userdata, or of the type, at `index`; pushes nothing and
/// gives false where there is none.
bool PushMetafield(lua_State* L, int index, const char* field) {
  if (!PushType(L, index)) return false;
  lua_getfield(L, -1, field);
  lua_remove(L, -2);
  if (!lua_isnil(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

void AppendKeys(lua_State* L, int index, const char* field, std::vector<std::string>& keys) {
  if (!PushMetafield(L, index, field)) return;
  for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) keys.emplace_back(TextAt(L, -2));
  lua_pop(L, 1);
}

/// The names that the object itself lists.
void AppendListed(lua_State* L, int index, std::vector<std::string>& names) {
  if (!PushMetafield(L, index, kListNames)) return;
  const int object = index < 0 ? index - 1 : index;
  if (IsType(L, object)) {
    lua_pushnil(L);
  } else {
    lua_pushvalue(L, object);
  }
  lua_call(L, 1, 1);
  for (size_t i = 1; i <= lua_objlen(L, -1); ++i) {
    lua_rawgeti(L, -1, static_cast<int>(i));
    names.emplace_back(TextAt(L, -1));
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

bool PushTypeMember(lua_State* L, int index, const char* kind, const std::string& name) {
  if (!PushMetafield(L, index, kind)) return false;
  PushText(L, name);
  lua_rawget(L, -2);
  lua_remove(L, -2);
  if (!lua_isnil(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

/// The text at the top of the stack, which it takes away.
std::string TakeText(lua_State* L) {
  std::string text = lua_type(L, -1) == LUA_TSTRING ? std::string(TextAt(L, -1)) : "";
  lua_pop(L, 1);
  return text;
}

}  // namespace

void PushMetatable(lua_State* L, const ObjectType& type, lua_CFunction destroy) {
  if (luaL_newmetatable(L, RegistryName(type.name).c_str())) FillMetatable(L, type, destroy);
}

bool IsType(lua_State* L, int index) {
  if (!lua_istable(L, index)) return false;
  lua_pushvalue(L, index);
  lua_pushstring(L, kName);
  lua_rawget(L, -2);
  bool same = false;
  if (lua_type(L, -1) == LUA_TSTRING) {
    luaL_getmetatable(L, RegistryName(TextAt(L, -1)).c_str());
    same = lua_rawequal(L, -1, -3) != 0;
    lua_pop(L, 1);
  }
  lua_pop(L, 2);
  return same;
}

bool PushTypeMethod(lua_State* L, int index, const std::string& name) {
  return PushTypeMember(L, index, kMethods, name);
}

bool PushTypeProperty(lua_State* L, int index, const std::string& name) {
  return PushTypeMember(L, index, kProperties, name);
}

bool PushTypeLookup(lua_State* L, int index, const std::string& name) {
  if (!PushMetafield(L, index, kLookup)) return false;
  lua_pushnil(L);
  PushText(L, name);
  lua_call(L, 2, 1);
  return true;
}

bool IsObject(lua_State* L, int index, const ObjectType& type) {
  return luaL_testudata(L, index, RegistryName(type.name).c_str()) != nullptr;
}

std::string ObjectTypeName(lua_State* L, int index) {
  if (!PushMetafield(L, index, kName)) return luaL_typename(L, index);
  std::string name(TextAt(L, -1));
  lua_pop(L, 1);
  return name;
}

bool PushObjectData(lua_State* L, int index) {
  if (!PushMetafield(L, index, kToData)) return false;
  lua_pushvalue(L, index < 0 ? index - 1 : index);
  lua_call(L, 1, 1);
  return true;
}

std::vector<std::string> ObjectMembers(lua_State* L, int index) {
  std::vector<std::string> names;
  AppendKeys(L, index, kMethods, names);
  AppendKeys(L, index, kProperties, names);
  AppendListed(L, index, names);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> ObjectMethods(lua_State* L, int index) {
  std::vector<std::string> names;
  AppendKeys(L, index, kMethods, names);
  if (PushMetafield(L, index, kListsMethods)) {
    if (lua_toboolean(L, -1)) AppendListed(L, index < 0 ? index - 1 : index, names);
    lua_pop(L, 1);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ObjectHelp(lua_State* L, int index) {
  return PushMetafield(L, index, kHelp) ? TakeText(L) : "";
}

std::string ObjectMemberHelp(lua_State* L, int index, const std::string& name) {
  index = index < 0 ? lua_gettop(L) + 1 + index : index;
  for (const char* kind : {kMethods, kProperties}) {
    if (!PushMetafield(L, index, kind)) continue;
    lua_getfield(L, -1, name.c_str());
    const std::string help = NotedHelp(L, -1);
    lua_pop(L, 2);
    if (!help.empty()) return help;
  }
  if (!PushMetafield(L, index, kDescribe)) return "";
  lua_pushvalue(L, index);
  PushText(L, name);
  lua_call(L, 2, 1);
  return TakeText(L);
}

}  // namespace strata::lua
