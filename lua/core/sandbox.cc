// The sandbox: Lua's own libraries as scripts see them.
#include "lua/core/sandbox.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>

#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/core/chunk.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/core/globals.h"
#include "lua/core/notes.h"
#include "lua/library/show.h"

namespace strata::lua {
namespace {

void OpenLibrary(lua_State* L, const char* name, lua_CFunction open) {
  lua_pushcfunction(L, open);
  lua_pushstring(L, name);
  lua_call(L, 1, 0);
}

/// Sets `table`.`name` = nil for each name.
void Remove(lua_State* L, const char* table, std::initializer_list<const char*> names) {
  lua_getglobal(L, table);
  for (const char* name : names) {
    lua_pushnil(L);
    lua_setfield(L, -2, name);
  }
  lua_pop(L, 1);
}

int Print(lua_State* L) {
  std::string line;
  for (int i = 1; i <= lua_gettop(L); ++i) line += (i > 1 ? "\t" : "") + Show(L, i);
  PrintText(L, line + '\n');
  return 0;
}

int ToString(lua_State* L) {
  if (lua_isnone(L, 1)) ThrowExpected(L, 1, "a value");
  PushText(L, Show(L, 1));
  return 1;
}

/// Calls the upvalue, which is LuaJIT's own function, with the arguments.
int CallOwn(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  CallNested(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

/// string.format, but tables and functions are shown as print() shows them. LuaJIT's own would show
/// addresses, and a job that contains an address differs at each evaluation.
int Format(lua_State* L) {
  for (int i = 2; i <= lua_gettop(L); ++i) {
    if (!lua_istable(L, i) && !lua_isfunction(L, i)) continue;
    PushText(L, Show(L, i));
    lua_replace(L, i);
  }
  return CallOwn(L);
}

/// string.gsub. It keeps 8 KB on the C stack while it calls a function of the script, which may
/// call string.gsub again; CallNested() limits that.
int Gsub(lua_State* L) {
  // LuaJIT's own errors would name neither the function nor the line.
  for (const int argument : {1, 2}) luaL_checkstring(L, argument);
  const bool replaces = lua_isstring(L, 3) || lua_istable(L, 3) || lua_isfunction(L, 3);
  if (!replaces) ThrowExpected(L, 3, "a string, a table or a function");
  return CallOwn(L);
}

/// Replaces a function of the string library by `function`, whose upvalue is the replaced one.
void WrapStringFunction(lua_State* L, const char* name, lua_CFunction function) {
  lua_getglobal(L, "string");
  lua_getfield(L, -1, name);
  lua_pushcclosure(L, function, 1);
  lua_setfield(L, -2, name);
  lua_pop(L, 1);
}

/// collectgarbage("collect" | "count" | "step"). The options that switch the collector off are left
/// out.
int CollectGarbage(lua_State* L) {
  const std::string what = lua_isnoneornil(L, 1) ? "collect" : TextArgument(L, 1, "a string");
  if (what == "count") {
    lua_pushnumber(L, static_cast<double>(State::Core::Of(L).limits.memory_used()) / 1024);
  } else if (what == "collect" || what == "step") {
    lua_pushinteger(L, lua_gc(L, what == "step" ? LUA_GCSTEP : LUA_GCCOLLECT, 0));
  } else {
    throw ConfigError("expected \"collect\", \"count\" or \"step\", got " + Describe(L, 1));
  }
  return 1;
}

/// The text of load()'s first argument: a string, or the pieces that a function returns.
std::string TextToLoad(lua_State* L) {
  if (lua_type(L, 1) == LUA_TSTRING) return std::string(TextAt(L, 1));
  CheckFunction(L, 1, "a string or a function");
  std::string text;
  while (true) {
    lua_pushvalue(L, 1);
    CallNested(L, 0, 1);
    if (lua_isnil(L, -1) || (lua_type(L, -1) == LUA_TSTRING && TextAt(L, -1).empty())) return text;
    text += TextArgument(L, -1, "a string from load's function");
    if (text.size() > State::Core::Of(L).limits.memory_limit()) throw std::bad_alloc();
    lua_pop(L, 1);
  }
}

/// The name, in errors, of a text given to load(). If the caller gave no name, it is the beginning
/// of the text.
std::string ShownName(std::string name) {
  name.resize(std::min({name.size(), name.find('\n'), size_t{40}}));
  for (char& c : name) {
    if (!std::isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return Str("=[string \"", name, "\"]");
}

/// load(text [, name]) takes text only; it returns nil and the message for a syntax error.
int Load(lua_State* L) {
  const std::string text = TextToLoad(L);
  const std::string shown = ShownName(lua_isnoneornil(L, 2) ? text : TextArgument(L, 2, "a name"));
  try {
    LoadText(L, text, shown);
    return 1;
  } catch (const ConfigError& error) {
    lua_pushnil(L);
    PushText(L, error.what());
    return 2;
  }
}

/// table.insert(list, [position,] value). LuaJIT's own would take minutes for a position far
/// outside the list.
int TableInsert(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const int64_t next = static_cast<int64_t>(lua_objlen(L, 1)) + 1;
  if (lua_gettop(L) == 2) {
    lua_rawseti(L, 1, static_cast<int>(next));
    return 0;
  }
  if (lua_gettop(L) != 3) throw ConfigError("expected a table, a position and a value");
  const int64_t position = IntArgument(L, 2, "a position");
  if (position < 1 || position > next) {
    throw ConfigError(Str("the position must be within 1 and ", next, ", it is ", position));
  }
  for (int64_t i = next; i > position; --i) {
    lua_rawgeti(L, 1, static_cast<int>(i - 1));
    lua_rawseti(L, 1, static_cast<int>(i));
  }
  lua_rawseti(L, 1, static_cast<int>(position));
  return 0;
}

/// math.random([[low,] high]) as in Lua 5.1, with our generator.
int MathRandom(lua_State* L) {
  Random& random = State::Core::Of(L).random;
  if (lua_gettop(L) == 0) {
    lua_pushnumber(L, random.NextDouble());
    return 1;
  }
  const int64_t low = lua_gettop(L) == 1 ? 1 : IntArgument(L, 1, "a whole number");
  const int64_t high = IntArgument(L, lua_gettop(L) == 1 ? 1 : 2, "a whole number");
  if (low > high) throw ConfigError(Str("no number lies between ", low, " and ", high));
  lua_pushnumber(L, static_cast<double>(random.NextInt(low, high)));
  return 1;
}

int MathRandomSeed(lua_State* L) {
  State::Core::Of(L).random = Random(static_cast<uint64_t>(IntArgument(L, 1, "a whole number")));
  return 0;
}

// Coroutines nest on the C stack, and LuaJIT itself does not limit how deeply.

/// Resumes the coroutine at `index` with the `arguments` at the top, and pushes its results. If it
/// failed, returns false and pushes the error.
bool Resume(lua_State* L, lua_State* coroutine, int arguments, int& results) {
  NestedCall nested(L);
  if (lua_status(coroutine) != LUA_YIELD && lua_gettop(coroutine) == 0) {
    throw ConfigError("cannot resume a dead coroutine");
  }
  if (coroutine == L) throw ConfigError("cannot resume the running coroutine");
  if (!lua_checkstack(coroutine, arguments + 1)) throw ConfigError("too many arguments");
  lua_xmove(L, coroutine, arguments);
  const int status = lua_resume(coroutine, arguments);
  const bool good = status == 0 || status == LUA_YIELD;
  results = good ? lua_gettop(coroutine) : 1;
  luaL_checkstack(L, results + 1, "too many results");
  lua_xmove(coroutine, L, results);
  return good;
}

lua_State* CoroutineArgument(lua_State* L) {
  if (!lua_isthread(L, 1)) ThrowExpected(L, 1, "a coroutine");
  return lua_tothread(L, 1);
}

int CoroutineResume(lua_State* L) {
  lua_State* coroutine = CoroutineArgument(L);
  int results = 0;
  bool good = false;
  try {
    good = Resume(L, coroutine, lua_gettop(L) - 1, results);
  } catch (const ConfigError& error) {
    PushText(L, error.what());
    results = 1;
  }
  lua_pushboolean(L, good);
  lua_insert(L, -results - 1);
  return results + 1;
}

int CallWrapped(lua_State* L) {
  int results = 0;
  lua_State* coroutine = lua_tothread(L, lua_upvalueindex(1));
  return Resume(L, coroutine, lua_gettop(L), results) ? results : lua_error(L);
}

int CoroutineWrap(lua_State* L) {
  CheckFunction(L, 1, "a function");
  lua_State* coroutine = lua_newthread(L);
  lua_pushvalue(L, 1);
  lua_xmove(L, coroutine, 1);
  lua_pushcclosure(L, Bound<CallWrapped>, 1);
  return 1;
}

void Replace(lua_State* L, const char* table, std::initializer_list<NamedFunction> functions) {
  lua_getglobal(L, table);
  SetFunctions(L, {functions.begin(), functions.size()});
  lua_pop(L, 1);
}

void ProtectStringMetatable(lua_State* L) {
  lua_pushliteral(L, "");
  lua_getmetatable(L, -1);
  lua_pushliteral(L, "string");
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 2);
}

}  // namespace

void OpenSandbox(lua_State* L) {
  OpenLibrary(L, "", luaopen_base);
  OpenLibrary(L, LUA_STRLIBNAME, luaopen_string);
  OpenLibrary(L, LUA_TABLIBNAME, luaopen_table);
  OpenLibrary(L, LUA_MATHLIBNAME, luaopen_math);
  OpenLibrary(L, LUA_BITLIBNAME, luaopen_bit);
  Remove(L, "_G", {"dofile", "loadfile", "getfenv", "setfenv", "newproxy", "module", "gcinfo"});
  Remove(L, "string", {"dump", "gfind"});
  Replace(L, "_G",
          {{"print", Bound<Print>},
           {"tostring", Bound<ToString>},
           {"collectgarbage", Bound<CollectGarbage>},
           {"load", Bound<Load>},
           {"loadstring", Bound<Load>}});
  Replace(L, "table", {{"insert", Bound<TableInsert>}});
  Replace(L, "math", {{"random", Bound<MathRandom>}, {"randomseed", Bound<MathRandomSeed>}});
  Replace(L, "coroutine", {{"resume", Bound<CoroutineResume>}, {"wrap", Bound<CoroutineWrap>}});
  WrapStringFunction(L, "format", Bound<Format>);
  WrapStringFunction(L, "gsub", Bound<Gsub>);
  ProtectStringMetatable(L);
  OpenRequire(L);
  NoteBaseHelp(L);
  MakeGlobalsStrict(L);
}

}  // namespace strata::lua
