// Programs (schedules) as values of Lua. Internal to lua/.
#pragma once

#include <lua.hpp>

#include "engine/schedule/program.h"

namespace strata::lua {

void PushProgram(lua_State* L, schedule::Program program);

}  // namespace strata::lua
