// Placeholders for strata.F, nn.init, strata.comm, strata.model, strata.tensors and strata.no_grad.
// The tables are empty. Reading a field of one, or calling strata.no_grad, loads the engine, which
// fills or replaces them.

#include <utility>

#include "lua/core/binding.h"
#include "lua/core/core.h"
#include "lua/core/notes.h"
#include "lua/host/engine_api.h"
#include "lua/library/library.h"

namespace strata::lua {
namespace {

/// __index of these tables until the engine is loaded. The engine gives them its own metatables.
int LoadAndLook(lua_State* L) {
  LoadEngine().InstallTensors(State::Of(L));
  lua_settop(L, 2);
  lua_gettable(L, 1);
  return 1;
}

/// strata.no_grad until the engine is loaded, which replaces it.
int LoadAndCallNoGrad(lua_State* L) {
  LoadEngine().InstallTensors(State::Of(L));
  lua_getfield(L, LUA_REGISTRYINDEX, kLibrary);
  lua_getfield(L, -1, "no_grad");
  lua_remove(L, -2);
  lua_insert(L, 1);
  CallNested(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

int LoadAndList(lua_State* L) {
  LoadEngine().InstallTensors(State::Of(L));
  lua_getfield(L, LUA_REGISTRYINDEX, kOperatorNames);
  lua_call(L, 0, 1);
  return 1;
}

/// Adds an empty table, which loads the engine when it is read, to the table at the top of the
/// stack.
void AddTable(lua_State* L, const char* name, const char* help) {
  lua_newtable(L);
  NoteHelp(L, -1, help);
  SetUnknownName(L, Bound<LoadAndLook>);
  lua_setfield(L, -2, name);
}

}  // namespace

void AddTensors(lua_State* L) {
  const std::pair<const char*, const char*> tables[] = {
      {"F",
       "F: torch.nn.functional's functions, and every other public operator of LibTorch\n"
       "F.softmax(x, 1), or torch.Tensor's x:softmax(1); a trailing table with names holds "
       "keyword\n"
       "arguments, F.arange(10, {dtype=\"float64\"}). help(F.softmax) shows what a function "
       "takes."},
      {"comm",
       "strata.comm: collectives for a job's functions, and for scripts of several processes"},
      {"model", "strata.model: what ranks of the model axis exchange, with gradients"},
      {"tensors", "strata.tensors: tensors in files: load(path), save(path, x)"}};
  for (const auto& [name, help] : tables) AddTable(L, name, help);
  const NamedFunction functions[] = {{"no_grad", Bound<LoadAndCallNoGrad>, kNoGradHelp}};
  SetFunctions(L, functions);
  lua_getfield(L, -1, "nn");
  AddTable(L, "init",
           "nn.init: torch.nn.init's functions, for `init` and `reset` of layers: "
           "nn.init.normal_(tensor, 0, 0.02)");
  lua_pop(L, 1);
  lua_pushcfunction(L, Bound<LoadAndList>);
  lua_setfield(L, LUA_REGISTRYINDEX, kOperatorNames);
}

}  // namespace strata::lua
