// strata.tensors: reads and writes tensors in files. Internal to lua/tensors/.
#pragma once

#include <lua.hpp>

namespace strata::lua {

/// Fills strata.tensors; the library's table is at the top of the stack.
void OpenTensorFiles(lua_State* L);

}  // namespace strata::lua
