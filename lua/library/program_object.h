// Programs (schedules) as values of Lua. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <vector>

#include "engine/schedule/program.h"
#include "lua/core/bind.h"

namespace strata::lua {

/// A program, and what lowering must know besides: Plan::tied_stages(), of a plan's program.
struct LuaProgram : schedule::Program {
  std::vector<int> tied_stages = {};
};

template <>
struct TypeOf<LuaProgram> {
  static const ObjectType& Get();
};

/// Counts its actions as memory of the script (TakeMemory()).
template <>
void Push(lua_State* L, const LuaProgram& program);

}  // namespace strata::lua
