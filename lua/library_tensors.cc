// strata.F: an empty table until a script asks it for something, which loads the engine.

#include "lua/binding.h"
#include "lua/core.h"
#include "lua/engine_api.h"
#include "lua/library.h"

namespace strata::lua {
namespace {

/// __index of F before there are tensors. The engine gives F its own metatable.
int LoadAndLook(lua_State* L) {
  LoadEngine().InstallTensors(State::Of(L));
  lua_settop(L, 2);
  lua_gettable(L, 1);
  return 1;
}

}  // namespace

void AddTensors(lua_State* L) {
  lua_newtable(L);
  SetUnknownName(L, Bound<LoadAndLook>);
  lua_setfield(L, -2, "F");
}

}  // namespace strata::lua
