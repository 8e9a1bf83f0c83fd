// The sandbox: the libraries that scripts see. Internal to lua/.
#pragma once

#include <lua.hpp>

namespace strata::lua {

/// Opens base, coroutine, string, table, math and bit. Removes the functions that could leave the
/// sandbox (dofile, loadfile, string.dump, getfenv, setfenv, newproxy, ...). Replaces those of
/// LuaJIT's functions that would load bytecode, overflow the C stack or differ between ranks.
/// REQUIRES: protected mode.
void OpenSandbox(lua_State* L);

/// Sets the global `require`, which loads files beside the script, and "strata".
void OpenRequire(lua_State* L);

/// Registers the help() texts of base Lua's functions. REQUIRES: the sandbox is open.
void NoteBaseHelp(lua_State* L);

}  // namespace strata::lua
