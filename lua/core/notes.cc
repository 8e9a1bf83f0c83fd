// Notes about values, in tables of the registry that map the value to the note.
#include "lua/core/notes.h"

#include "engine/base/value.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"

namespace strata::lua {
namespace {

constexpr char kHelp[] = "strata.help";        // registry: value -> text
constexpr char kFields[] = "strata.fields";    // registry: value -> const FieldTable*
constexpr char kResults[] = "strata.results";  // registry: value -> GivenType<T>

/// Pops the note at the top of the stack and stores it for a value. `index` is the value's index
/// before the note was pushed.
void Note(lua_State* L, const char* table, int index) {
  lua_pushvalue(L, index < 0 ? index - 1 : index);
  luaL_newmetatable(L, table);  // a table in the registry, made when it is missing
  lua_insert(L, -3);
  lua_insert(L, -2);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

/// Pushes the note for the value at `index`, or nil.
void PushNote(lua_State* L, const char* table, int index) {
  if (lua_isnoneornil(L, index)) return lua_pushnil(L);
  lua_pushvalue(L, index);
  luaL_newmetatable(L, table);
  lua_insert(L, -2);
  lua_rawget(L, -2);
  lua_remove(L, -2);
}

}  // namespace

bool PushAnswer(lua_State* L, const char* function, int index) {
  lua_pushvalue(L, index);
  lua_getfield(L, LUA_REGISTRYINDEX, function);
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

std::vector<std::string> OperatorNames(lua_State* L) {
  lua_getfield(L, LUA_REGISTRYINDEX, kOperatorNames);
  lua_call(L, 0, 1);
  std::vector<std::string> names;
  const Value list = ToValue(L, -1, "the operators");
  for (const Value& name : list.as_list()) names.push_back(name.as_string());
  lua_pop(L, 1);
  return names;
}

void NoteHelp(lua_State* L, int index, std::string_view text) {
  PushText(L, text);
  Note(L, kHelp, index);
}

std::string NotedHelp(lua_State* L, int index) {
  PushNote(L, kHelp, index);
  std::string text = lua_isstring(L, -1) ? std::string(TextAt(L, -1)) : "";
  lua_pop(L, 1);
  return text;
}

void NoteFields(lua_State* L, int index, const FieldTable& fields) {
  lua_pushlightuserdata(L, const_cast<FieldTable*>(&fields));
  Note(L, kFields, index);
}

const FieldTable* NotedFields(lua_State* L, int index) {
  PushNote(L, kFields, index);
  const auto* fields = static_cast<const FieldTable*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  return fields;
}

void NoteResult(lua_State* L, int index, lua_CFunction gives) {
  lua_pushcfunction(L, gives);
  Note(L, kResults, index);
}

bool PushResult(lua_State* L, int index) {
  PushNote(L, kResults, index);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    return lua_iscfunction(L, index) && PushAnswer(L, kOperatorResult, index);
  }
  lua_call(L, 0, 1);
  return true;
}

}  // namespace strata::lua
