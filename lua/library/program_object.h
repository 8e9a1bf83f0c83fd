// Programs (schedules) as values of Lua. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <vector>

#include "engine/schedule/program/program.h"

namespace strata::lua {

/// `tied_stages`: Plan::tied_stages(), for a plan's program.
void PushProgram(lua_State* L, schedule::Program program, std::vector<int> tied_stages = {});
/// Pushes the type of what PushProgram() pushes, as GivenType<T> does.
int ProgramType(lua_State* L);

}  // namespace strata::lua
