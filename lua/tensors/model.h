// strata.model: how functional layers, and layers of the script's own, share work among the ranks
// of the model axis. With gradients. Part of the engine's shared library. Internal to lua/.
//
//   strata.model.rank(), .size()     0 and 1 where layers are not shared, while shapes are inferred
//                                    and at the prompt; then the functions give what they were
//                                    given
//   strata.model.copy(x)             x; the ranks' gradients are summed
//   strata.model.reduce(x)           the sum over the ranks; the gradient is what it was
//   strata.model.gather(x)           the ranks' parts behind each other; the gradient: the own part
//   strata.model.scatter(x)          the own part; the gradient: all parts
//   strata.model.gather_summed(x)    as gather; the gradient: the own part of the ranks' sum
//   strata.model.reduce_scatter(x)   the own part of the sum; the gradient: all parts
//
// A second argument is the dim in parts (-1, the last).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <lua.hpp>

#include "engine/layers/axis/crossing.h"

namespace strata::lua {

/// Cross() on the model axis of the layer that runs, without keeping other ranks, which may be
/// threads of this state, from running Lua. Throws ConfigError where x has no such dim.
at::Tensor CrossUnlocked(lua_State* L, const at::Tensor& x, Crossing how, int64_t dim);

/// Fills the table `model` of the library, which is at the top of the stack.
void OpenModel(lua_State* L);

}  // namespace strata::lua
