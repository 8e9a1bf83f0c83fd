// Values of Lua as text for people: what print(), tostring() and the prompt show. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <string>
#include <string_view>

#include "engine/base/value.h"
#include "lua/core/bind.h"

namespace strata::lua {

/// The value at `index`. Tables as Lua writes them, positions first, then names in order; on one
/// line where that is short, else one line per entry; long ones are cut ("... 900 more"), a table
/// within itself is "{...}". Strings inside tables are quoted. Functions show their place. A value
/// with __tostring shows what that gives. `quoted`: a string has quotes.
std::string Show(lua_State* L, int index, bool quoted = false);

/// Data that prints as a text, as reports do.
struct Shown {
  Value value;
  std::string text;
};
template <>
void Push(lua_State* L, const Shown& shown);

}  // namespace strata::lua
