// Follows a chain of names from value to value, as completion and help need it. It runs no code of
// the user's. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <string>

namespace strata::lua {

/// True when the table at `index` is strata.F. Its operators become fields only when they are used.
bool IsOperators(lua_State* L, int index);

/// Replaces the value at the top of the stack by its member `step`. False when there is none; then
/// the value stays. It reads tables without their metatables, and properties of our own objects. It
/// calls no function of the user's: the step kCallStep gives the type that is noted for the
/// function (NoteResult()), and later steps are members of that type.
bool FollowStep(lua_State* L, const std::string& step);

}  // namespace strata::lua
