// Indexing of tensors, x[...], with PyTorch's rules. Internal to lua/tensors/.
//
//   x[1]  x[-1]              a row: dim 0, from 0, negative from the end
//   x[idx]  x[mask]          rows by a tensor of integers, elements by one of booleans
//   x[{0, {2, 5}}]           a position for each dim: Python's x[0, 2:5]
//
// A position is a whole number, a range {start, stop, step} ({2} is 2:, {nil, 5} is :5, {} is :), a
// tensor, or "..." for all dims in between. x[...] = v sets the elements to a number or a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <lua.hpp>

namespace strata::lua {

/// Returns x[key], as a view if PyTorch returns one. Throws ConfigError for a wrong key.
at::Tensor GetElements(lua_State* L, const at::Tensor& tensor, int key);
/// Sets x[key] = value. Throws ConfigError for a wrong key or value.
void SetElements(lua_State* L, const at::Tensor& tensor, int key, int value);

}  // namespace strata::lua
