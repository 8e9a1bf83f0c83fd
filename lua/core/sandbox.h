// The libraries that scripts see, without those that they must not see. Internal to lua/.
#pragma once

#include <lua.hpp>

namespace strata::lua {

/// Opens base, coroutine, string, table, math and bit, takes out what leaves the sandbox (dofile,
/// loadfile, string.dump, getfenv, setfenv, newproxy, ...) and puts our own in where LuaJIT's would
/// load bytecode, overflow the C stack or differ between ranks. REQUIRES: protected mode.
void OpenSandbox(lua_State* L);

/// `require`: files beside the script, and "strata". Sets the global.
void OpenRequire(lua_State* L);

/// Notes the help of what base Lua brings. REQUIRES: the sandbox is open.
void NoteBaseHelp(lua_State* L);

}  // namespace strata::lua
