// strata.model: functions by which layers of the script divide their work among the ranks of the
// model axis, with gradients. Part of the engine's shared library. Internal to lua/.
//
//   function                        result                         gradient
//   strata.model.rank(), .size()    this rank's index on the axis, and the axis's size
//   strata.model.copy(x)            x                              summed over the ranks
//   strata.model.reduce(x)          the sum over the ranks         unchanged
//   strata.model.gather(x)          all ranks' parts, concatenated this rank's part
//   strata.model.scatter(x)         this rank's part               all parts, concatenated
//   strata.model.gather_summed(x)   as gather                      this rank's part of the sum
//   strata.model.reduce_scatter(x)  this rank's part of the sum    all parts, concatenated
//
// Without a model axis, while shapes are inferred, and at the prompt, the rank is 0, the size is 1,
// and the functions return x.
//
// The second argument is the dim that is divided (default -1, the last one).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <lua.hpp>

#include "engine/layers/axis/crossing.h"

namespace strata::lua {

/// Cross() on the model axis of the layer that runs. Meanwhile other ranks, which may be threads of
/// this state, can run Lua. Throws ConfigError if x has no such dim.
at::Tensor CrossUnlocked(lua_State* L, const at::Tensor& x, Crossing how, int64_t dim);

/// Fills the table `model` of the library; the library is at the top of the stack.
void OpenModel(lua_State* L);

}  // namespace strata::lua
