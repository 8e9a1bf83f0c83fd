// Makes the library out of its parts.
#include "lua/library/library.h"

#include "lua/core/binding.h"
#include "lua/core/notes.h"
#include "lua/library/job_object.h"

namespace strata::lua {
void OpenLibrary(lua_State* L) {
  lua_newtable(L);
  AddFiles(L);
  AddJson(L);
  AddLayers(L);
  AddData(L);
  AddJobs(L);
  AddMaps(L);
  AddPlans(L);
  AddTopology(L);
  AddPartition(L);
  AddSchedule(L);
  AddTensors(L);
  NoteHelp(L, -1, "strata: the library, also as require \"strata\"");
  RefuseUnknownNames(L, "strata.");
  lua_setfield(L, LUA_REGISTRYINDEX, kLibrary);
}

}  // namespace strata::lua
