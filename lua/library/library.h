// The table that `require "strata"` gives. Internal to lua/.
#pragma once

#include <lua.hpp>

namespace strata::lua {

/// Makes the library and notes it in the registry. REQUIRES: protected mode.
void OpenLibrary(lua_State* L);

// The parts. Each adds its fields to the table at the top of the stack.
void AddFiles(lua_State* L);      ///< read
void AddJson(lua_State* L);       ///< json
void AddLayers(lua_State* L);     ///< nn, layer, times, cut
void AddData(lua_State* L);       ///< data
void AddJobs(lua_State* L);       ///< job, options, load
void AddMaps(lua_State* L);       ///< maps
void AddTopology(lua_State* L);   ///< topology
void AddPartition(lua_State* L);  ///< partition
void AddSchedule(lua_State* L);   ///< schedule
void AddTensors(lua_State* L);    ///< F

}  // namespace strata::lua
