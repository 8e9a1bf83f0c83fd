// The table that `require "strata"` gives. Internal to lua/.
#pragma once

#include <lua.hpp>

namespace strata::lua {

/// The registry's name of the library.
inline constexpr char kLibrary[] = "strata.library";

/// The registry's function that lists the names of strata.F, for completion. Until there are
/// tensors it loads the engine.
inline constexpr char kOperatorNames[] = "strata.operator_names";

/// Makes the library and notes it in the registry. REQUIRES: protected mode.
void OpenLibrary(lua_State* L);

/// Makes reading a name that the table at the top of the stack lacks call `function`(table, name).
void SetUnknownName(lua_State* L, lua_CFunction function);

// The parts. Each adds its fields to the table at the top of the stack.
void AddFiles(lua_State* L);      ///< read
void AddJson(lua_State* L);       ///< json
void AddLayers(lua_State* L);     ///< nn, layer, times, cut
void AddData(lua_State* L);       ///< data
void AddJobs(lua_State* L);       ///< job, options, load
void AddTopology(lua_State* L);   ///< topology
void AddPartition(lua_State* L);  ///< partition
void AddSchedule(lua_State* L);   ///< schedule
void AddTensors(lua_State* L);    ///< F
void AddHelp(lua_State* L);       ///< help

}  // namespace strata::lua
