// Follows a chain of names from value to value, for completion and help. It runs no user code.
// Internal to lua/.
#pragma once

#include <lua.hpp>
#include <string>

namespace strata::lua {

/// True if the table at `index` is strata.F, whose operators become fields only when they are used.
bool IsOperators(lua_State* L, int index);

/// Replaces the value at the top of the stack by its member `step`. If there is none, returns false
/// and the value stays. It reads tables without their metatables, and properties of our own
/// objects. It never calls a user's function: the step kCallStep gives the type of the function's
/// result (NoteResult()), and later steps are members of that type.
bool FollowStep(lua_State* L, const std::string& step);

}  // namespace strata::lua
