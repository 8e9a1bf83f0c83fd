// Conversion between Lua values and Value. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"

namespace strata::lua {

/// Converts a Lua number: to an integer if it is whole and within +-2^53, otherwise to a double.
Value NumberValue(double number);

/// The value at `index` as plain data:
///  - a table whose keys are 1..n becomes a list, also an empty one;
///  - a table with names becomes a map with sorted names. Positions beside names become the names
///    "1", "2", ... (see CallOf, engine/base/fields/fields.h);
///  - a function becomes a FunctionRef, which PushFunction() finds again;
///  - an object becomes the result of ObjectType::to_data; a topology becomes the sizes of its
///    axes.
/// Throws ConfigError, with the dotted path of the value, for any other value, for a table that
/// contains itself, and for other keys. `what` is the name of the whole value in that path: "the
/// job".
Value ToValue(lua_State* L, int index, std::string_view what);

/// Pushes plain data as a Lua value; an integer beyond 2^53 is rounded.
void PushValue(lua_State* L, const Value& value);

/// A reference to the function at `index`. The state keeps the function alive for ever. `digest`
/// covers its source text and the numbers, texts and booleans among its upvalues.
FunctionRef ToFunctionRef(lua_State* L, int index);
/// The place where a function was defined, "alexnet.lua:12"; "a built-in function" for one of ours.
std::string FunctionPlace(lua_State* L, int index);
/// Pushes a referenced function. Throws ConfigError for a reference made by another state.
void PushFunction(lua_State* L, const FunctionRef& function);
/// The name in a function's definition, as its source tells ("local function block(" gives
/// "block"); "" for an anonymous one.
std::string FunctionName(lua_State* L, int index);

/// "a list of 3", "a table with the keys a, b".
std::string DescribeTable(lua_State* L, int index);

/// True for a table without a metatable, or with one set by WatchData(): data, not an object or a
/// library.
bool IsPlainTable(lua_State* L, int index);

/// Makes reading an unknown key of the table at the top of the stack call `read`(table, key).
/// `name` is the registry key of the metatable that all tables with this `read` share.
void WatchData(lua_State* L, const char* name, lua_CFunction read);

/// The positions and the names of a table. `positions` is the last position; holes are nil.
struct TableShape {
  int positions = 0;
  std::vector<std::string> names;  ///< sorted
};
/// Throws ConfigError for other keys, and for a list with more than 64 holes.
TableShape ShapeOf(lua_State* L, int index);

}  // namespace strata::lua
