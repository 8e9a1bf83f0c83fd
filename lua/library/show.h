// The printed form of Lua values, for print(), tostring() and the prompt. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>

#include "engine/base/value.h"
#include "lua/core/bind.h"

namespace strata::lua {

/// The printed form of the value at `index`. Tables are written as in Lua: positions first, then
/// names in order; on one line if that is short, otherwise one entry a line. Long tables are cut
/// ("... 900 more"); a table within itself is "{...}". Strings inside tables are quoted. Functions
/// show the place of their definition. A value with __tostring shows its result. `quoted` puts a
/// string itself in quotes.
std::string Show(lua_State* L, int index, bool quoted = false);

/// Data with its own printed form, such as a report.
struct Shown {
  Value value;
  std::string text;
};
template <>
void Push(lua_State* L, const Shown& shown);

}  // namespace strata::lua
