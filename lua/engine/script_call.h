// Calls of a script's functions by the engine. Internal to lua/engine/.
#pragma once

#include <functional>

#include "lua/core/core.h"

namespace strata::lua {

/// Runs `body` while holding the state's turn. math.random uses a generator of its own, which is
/// seeded from the thread's generator when the first number is drawn. LibTorch's errors become
/// ConfigErrors.
void RunIn(State& state, const std::function<void(lua_State*)>& body);

}  // namespace strata::lua
