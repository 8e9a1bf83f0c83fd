// Between Lua's values and Value. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"

namespace strata::lua {

/// A number of Lua's as it is meant: an integer where it is whole and within +-2^53, else a double.
Value NumberValue(double number);

/// The value at `index` as plain data:
///  - a table whose keys are 1..n becomes a list, also an empty one;
///  - a table with names becomes a map with sorted names. Positions beside names become the names
///    "1", "2", ... (see CallOf, engine/base/fields/fields.h);
///  - a function becomes a FunctionRef, which PushFunction() finds again;
///  - an object becomes what ObjectType::to_data gives: of a topology the sizes of its axes.
/// Throws ConfigError, with the dotted path of the value, for any other value, for a table that
/// holds itself, and for other keys. `what` names the whole in the path: "the job".
Value ToValue(lua_State* L, int index, std::string_view what);

/// Pushes plain data as Lua's; an integer beyond 2^53 is rounded.
void PushValue(lua_State* L, const Value& value);

/// The function at `index` as data; the state keeps it for ever. `digest` covers its source text
/// and the numbers, texts and booleans among its upvalues.
FunctionRef ToFunctionRef(lua_State* L, int index);
/// Where a function was defined, "alexnet.lua:12"; "a built-in function" for one of ours.
std::string FunctionPlace(lua_State* L, int index);
/// Throws ConfigError for a reference of another state.
void PushFunction(lua_State* L, const FunctionRef& function);
/// The name in a function's definition, as its source tells ("local function block(" gives
/// "block"); "" for an anonymous one.
std::string FunctionName(lua_State* L, int index);

/// "a list of 3", "a table with the keys a, b".
std::string DescribeTable(lua_State* L, int index);

/// A table without a metatable, or one of WatchData(): data, not an object or a library.
bool IsPlainTable(lua_State* L, int index);

/// Makes reading what the data at the top of the stack lacks call `read`(data, key). `name` is the
/// registry's of all data with this `read`.
void WatchData(lua_State* L, const char* name, lua_CFunction read);

/// The positions and the names of a table. `positions` counts up to the last one; holes are nil.
struct TableShape {
  int positions = 0;
  std::vector<std::string> names;  ///< sorted
};
/// Throws ConfigError for other keys, and for positions that are mostly holes.
TableShape ShapeOf(lua_State* L, int index);

}  // namespace strata::lua
