// Values of Lua as text for people: what the prompt shows, and what print() and tostring() make of
// tables.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>

#include "engine/base/value.h"

namespace strata::lua {

/// The value at `index`. Tables as Lua writes them, positions first, then names in order; on one
/// line where that is short, else one line per entry; long ones are cut ("... 900 more"), a table
/// within itself is "{...}". Strings inside tables are quoted. Functions show their place. A value
/// with __tostring shows what that gives.
std::string Show(lua_State* L, int index);

/// What the prompt shows: as Show(), but a string of one line is quoted, and of a built-in function
/// stands its help.
std::string ShowAtPrompt(lua_State* L, int index);

/// Pushes data that prints as `text`, as reports do. Gives 1, the number of results.
int PushShown(lua_State* L, const Value& value, std::string_view text);

}  // namespace strata::lua
