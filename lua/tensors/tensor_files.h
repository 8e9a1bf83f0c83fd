// strata.tensors: tensors in files. Internal to lua/tensors/.
#pragma once

#include <lua.hpp>

namespace strata::lua {

/// Fills strata.tensors in the library's table at the top of the stack.
void OpenTensorFiles(lua_State* L);

}  // namespace strata::lua
