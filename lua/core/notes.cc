// Notes beside values, in tables of the registry.
#include "lua/core/notes.h"

#include "lua/core/binding.h"

namespace strata::lua {
namespace {

constexpr char kHelp[] = "strata.help";        // registry: value -> text
constexpr char kFields[] = "strata.fields";    // registry: value -> const FieldTable*
constexpr char kResults[] = "strata.results";  // registry: value -> what pushes the type it gives

/// Pushes the registry's table of that name, and the value at `index` above it as its key.
void PushNotes(lua_State* L, const char* table, int index) {
  lua_pushvalue(L, index);
  lua_getfield(L, LUA_REGISTRYINDEX, table);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, table);
  }
  lua_insert(L, -2);
}

/// Pushes the engine's answer to what the function at `index` gives; false where there is none.
bool PushOperatorResult(lua_State* L, int index) {
  lua_pushvalue(L, index);
  lua_getfield(L, LUA_REGISTRYINDEX, kOperatorResult);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 2);
    return false;
  }
  lua_insert(L, -2);
  lua_call(L, 1, 1);
  if (!lua_isnil(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

}  // namespace

void NoteHelp(lua_State* L, int index, std::string_view text) {
  PushNotes(L, kHelp, index);
  PushText(L, text);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

std::string NotedHelp(lua_State* L, int index) {
  if (lua_isnoneornil(L, index)) return "";
  PushNotes(L, kHelp, index);
  lua_rawget(L, -2);
  std::string text = lua_isstring(L, -1) ? std::string(TextAt(L, -1)) : "";
  lua_pop(L, 2);
  return text;
}

void NoteFields(lua_State* L, int index, const FieldTable& fields) {
  PushNotes(L, kFields, index);
  lua_pushlightuserdata(L, const_cast<FieldTable*>(&fields));
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

const FieldTable* NotedFields(lua_State* L, int index) {
  if (lua_isnoneornil(L, index)) return nullptr;
  PushNotes(L, kFields, index);
  lua_rawget(L, -2);
  const auto* fields = static_cast<const FieldTable*>(lua_touserdata(L, -1));
  lua_pop(L, 2);
  return fields;
}

void NoteResult(lua_State* L, int index, lua_CFunction gives) {
  PushNotes(L, kResults, index);
  lua_pushcfunction(L, gives);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

bool PushResult(lua_State* L, int index) {
  if (lua_isnoneornil(L, index)) return false;
  PushNotes(L, kResults, index);
  lua_rawget(L, -2);
  lua_remove(L, -2);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    return lua_iscfunction(L, index) && PushOperatorResult(L, index);
  }
  lua_call(L, 0, 1);
  return true;
}

}  // namespace strata::lua
