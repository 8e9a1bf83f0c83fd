// Running the body of a binding, and the errors, arguments and tables that all bindings share.
#include "lua/core/binding.h"

#include <cstring>
#include <exception>
#include <new>

#include "engine/base/text.h"
#include "lua/core/chunk.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/core/notes.h"
#include "lua/core/object.h"

namespace strata::lua {
namespace {

void PushError(lua_State* L, std::string_view text) {
  State::Core& core = State::Core::Of(L);
  const std::string place = core.Place(L);
  // An error from a declaration already begins with the line of its call. PlaceOfKey() may name a
  // more exact line within that call, so the place is taken off and added again.
  const bool is_here = !place.empty() && text.starts_with(place + ": ");
  if (is_here) text.remove_prefix(place.size() + 2);
  const bool is_placed = place.empty() || HasPlace(text);
  PushText(L, is_placed ? std::string(text) : Str(PlaceOfKey(core, place, text), ": ", text));
}

void RefuseTables(lua_State* L, int first) {
  for (int i = first; i <= lua_gettop(L); ++i) {
    if (!lua_istable(L, i)) continue;
    throw ConfigError(Str("expected no table behind the arguments, got ", Describe(L, i)));
  }
}

/// True if `body` returned normally. Otherwise the error's text is at the top of the stack.
bool TryBody(lua_State* L, Body body, int most, int& results) {
  try {
    if (most >= 0) RefuseTables(L, most + 1);
    results = body(L);
    return true;
  } catch (const WorldError& error) {
    State::Core::Of(L).world_error = error.what();
    PushError(L, error.what());
  } catch (const std::bad_alloc&) {
    PushError(L, "not enough memory");
  } catch (const Error& error) {
    PushError(L, error.what());
  } catch (const std::exception& error) {
    PushError(L, ForeignText(error.what()));
  }
  return false;
}

/// __index of a table. Upvalue: the prefix of its names.
int RefuseName(lua_State* L) {
  constexpr size_t kListed = 40;
  const std::string name = TextArgument(L, 2, "a name");
  throw ConfigError(Str("there is no ", TextAt(L, lua_upvalueindex(1)), name,
                        DidYouMean(name, ShapeOf(L, 1).names, kListed)));
}

/// Pops the function at the top of the stack and makes it the __index of the table below.
void SetIndex(lua_State* L) {
  lua_newtable(L);
  lua_insert(L, -2);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
}

}  // namespace

int RunBody(lua_State* L, Body body, int most) {
  int results = 0;
  return TryBody(L, body, most, results) ? results : lua_error(L);
}

void SetFunctions(lua_State* L, std::span<const NamedFunction> functions) {
  for (const NamedFunction& function : functions) {
    lua_pushcfunction(L, function.function);
    if (*function.help) NoteHelp(L, -1, function.help);
    if (function.fields) NoteFields(L, -1, function.fields());
    if (function.gives) NoteResult(L, -1, function.gives);
    lua_setfield(L, -2, function.name);
  }
}

void SetUnknownName(lua_State* L, lua_CFunction function) {
  lua_pushcfunction(L, function);
  SetIndex(L);
}

void RefuseUnknownNames(lua_State* L, std::string_view prefix) {
  PushText(L, prefix);
  lua_pushcclosure(L, Bound<RefuseName>, 1);
  SetIndex(L);
}

void PushText(lua_State* L, std::string_view text) { lua_pushlstring(L, text.data(), text.size()); }

std::string_view TextAt(lua_State* L, int index) {
  size_t size = 0;
  const char* text = lua_tolstring(L, index, &size);
  return {text, size};
}

std::string TextArgument(lua_State* L, int index, std::string_view what) {
  if (lua_type(L, index) != LUA_TSTRING) ThrowExpected(L, index, what);
  return std::string(TextAt(L, index));
}

int64_t IntArgument(lua_State* L, int index, std::string_view what) {
  if (lua_type(L, index) != LUA_TNUMBER) ThrowExpected(L, index, what);
  const Value number = NumberValue(lua_tonumber(L, index));
  if (!number.is_int()) ThrowExpected(L, index, what);
  return number.as_int();
}

double NumberArgument(lua_State* L, int index, std::string_view what) {
  if (lua_type(L, index) != LUA_TNUMBER) ThrowExpected(L, index, what);
  return lua_tonumber(L, index);
}

void CheckFunction(lua_State* L, int index, std::string_view what) {
  if (!lua_isfunction(L, index)) ThrowExpected(L, index, what);
}

std::string ForeignText(std::string_view text) {
  constexpr size_t kLongest = 600;
  for (const char* const end : {"\nException raised from", " Hint: enable anomaly detection"}) {
    text = text.substr(0, text.find(end));
  }
  return Str(Trim(text.substr(0, kLongest)), text.size() > kLongest ? " ..." : "");
}

std::string Describe(lua_State* L, int index) {
  switch (lua_type(L, index)) {
    case LUA_TNONE:
    case LUA_TNIL:
      return "nothing";
    case LUA_TBOOLEAN:
      return Value(lua_toboolean(L, index) != 0).Describe();
    case LUA_TNUMBER:
      return NumberValue(lua_tonumber(L, index)).Describe();
    case LUA_TSTRING:
      return Value(TextAt(L, index)).Describe();
    case LUA_TTABLE:
      return DescribeTable(L, index);
    case LUA_TUSERDATA: {
      const std::string name = ObjectTypeName(L, index);
      return Str(std::strchr("aeiou", name[0]) ? "an " : "a ", name);
    }
    default:
      return Str("a ", luaL_typename(L, index));
  }
}

void ThrowExpected(lua_State* L, int index, std::string_view what) {
  throw ConfigError(Str("expected ", what, ", got ", Describe(L, index)));
}

}  // namespace strata::lua
