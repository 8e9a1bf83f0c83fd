// Calls of a script's functions by the engine. Internal to lua/engine/.
#pragma once

#include <functional>

#include "lua/core/core.h"

namespace strata::lua {

/// Runs `body` in the state's turn, with a math.random of its own, which is seeded from the
/// thread's generator when it is first asked. LibTorch's errors become ConfigErrors.
void RunIn(State& state, const std::function<void(lua_State*)>& body);

}  // namespace strata::lua
