// The library: the table that `require "strata"` returns. Internal to lua/.
#pragma once

#include <lua.hpp>

namespace strata::lua {

/// Makes the library and stores it in the registry. REQUIRES: protected mode.
void OpenLibrary(lua_State* L);

// The parts of the library. Each adds its fields to the table at the top of the stack.
void AddFiles(lua_State* L);
void AddJson(lua_State* L);
void AddLayers(lua_State* L);
void AddData(lua_State* L);
void AddJobs(lua_State* L);
void AddMaps(lua_State* L);
void AddTopology(lua_State* L);
void AddPartition(lua_State* L);
void AddSchedule(lua_State* L);
void AddTensors(lua_State* L);

/// The help of strata.no_grad. The engine uses it when it replaces that function.
inline constexpr char kNoGradHelp[] = "strata.no_grad(f, ...): f(...) without gradients";

}  // namespace strata::lua
