// Elements of tensors, x[...], as PyTorch counts and takes them. Internal to lua/tensors/.
//
//   x[1]  x[-1]              a row: dim 0, from 0, negative from the end
//   x[idx]  x[mask]          rows by a tensor of integers, elements by one of booleans
//   x[{0, {2, 5}}]           a position for each dim: Python's x[0, 2:5]
//
// A position is a whole number, a range {start, stop, step} ({2} is 2:, {nil, 5} is :5, {} is :), a
// tensor, or "..." for all dims between. x[...] = v sets them, to a number or a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <lua.hpp>

namespace strata::lua {

/// x[key], a view wherever PyTorch gives one. Throws ConfigError.
at::Tensor GetElements(lua_State* L, const at::Tensor& tensor, int key);
/// x[key] = value. Throws ConfigError.
void SetElements(lua_State* L, const at::Tensor& tensor, int key, int value);

}  // namespace strata::lua
