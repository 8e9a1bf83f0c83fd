// Makes the library out of its parts.
#include "lua/library/library.h"

#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/notes.h"
#include "lua/library/job_object.h"

namespace strata::lua {
namespace {

/// __index of the library: a name that it does not have.
int UnknownName(lua_State* L) {
  const std::string name = TextArgument(L, 2, "a name");
  const std::vector<std::string> names = ShapeOf(L, 1).names;
  throw ConfigError(Str("there is no strata.", name, DidYouMean(name, names, names.size())));
}

}  // namespace

void OpenLibrary(lua_State* L) {
  lua_newtable(L);
  AddFiles(L);
  AddJson(L);
  AddLayers(L);
  AddData(L);
  AddJobs(L);
  AddPlans(L);
  AddTopology(L);
  AddPartition(L);
  AddSchedule(L);
  AddTensors(L);
  NoteHelp(L, -1, "strata: the library, also as require \"strata\"");
  SetUnknownName(L, Bound<UnknownName>);
  lua_setfield(L, LUA_REGISTRYINDEX, kLibrary);
}

}  // namespace strata::lua
