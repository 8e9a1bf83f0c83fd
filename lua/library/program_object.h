// Programs (schedules) as Lua values. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <vector>

#include "engine/schedule/program.h"
#include "lua/core/bind.h"

namespace strata::lua {

/// A program, with the tied stages that lowering needs. For a plan's program these are
/// Plan::tied_stages().
struct LuaProgram : schedule::Program {
  std::vector<int> tied_stages = {};
};

template <>
struct TypeOf<LuaProgram> {
  static const ObjectType& Get();
};

/// Pushes a program; its actions count towards the script's memory (TakeMemory()).
template <>
void Push(lua_State* L, const LuaProgram& program);

}  // namespace strata::lua
