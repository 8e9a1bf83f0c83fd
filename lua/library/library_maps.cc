// strata.maps: tables that map the tensor names of published models to those of models/.
#include "engine/checkpoint/weights/weight_map.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/notes.h"
#include "lua/library/library.h"

namespace strata::lua {

void AddMaps(lua_State* L) {
  lua_newtable(L);
  for (const auto& [name, map] : BuiltInMaps()) {
    PushValue(L, map);
    lua_setfield(L, -2, name.c_str());
  }
  RefuseUnknownNames(L, "strata.maps.");
  NoteHelp(L, -1,
           "strata.maps: for the job's weights = {\"gpt2/\", map=strata.maps.gpt2}: rules\n"
           "{ours, theirs, transpose=, dim=, part=, tied=} of names with places, \"h.{i}.ln.{p}\"");
  lua_setfield(L, -2, "maps");
}

}  // namespace strata::lua
