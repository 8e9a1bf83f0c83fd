// strata.F, strata.comm and strata.model: empty tables until a script asks them for something,
// which loads the engine.

#include "lua/binding.h"
#include "lua/core.h"
#include "lua/engine_api.h"
#include "lua/library.h"

namespace strata::lua {
namespace {

/// __index of all three before there are tensors. The engine gives them metatables of its own.
int LoadAndLook(lua_State* L) {
  LoadEngine().InstallTensors(State::Of(L));
  lua_settop(L, 2);
  lua_gettable(L, 1);
  return 1;
}

int LoadAndList(lua_State* L) {
  LoadEngine().InstallTensors(State::Of(L));
  lua_getfield(L, LUA_REGISTRYINDEX, kOperatorNames);
  lua_call(L, 0, 1);
  return 1;
}

}  // namespace

void AddTensors(lua_State* L) {
  for (const char* name : {"F", "comm", "model"}) {
    lua_newtable(L);
    SetUnknownName(L, Bound<LoadAndLook>);
    lua_setfield(L, -2, name);
  }
  lua_pushcfunction(L, Bound<LoadAndList>);
  lua_setfield(L, LUA_REGISTRYINDEX, kOperatorNames);
}

}  // namespace strata::lua
