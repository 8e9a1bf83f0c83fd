// Conversion between tensors and plain bytes, for code that reads samples without torch. Internal
// to lua/.
#pragma once

#include <ATen/core/Tensor.h>

#include <lua.hpp>
#include <vector>

#include "engine/data/data_script.h"

namespace strata::lua {

/// Makes new tensors from these bytes.
std::vector<at::Tensor> ToTensors(const PlainTensors& plain);
/// Copies tensors from any device, in row-major order. Throws ConfigError for a dtype that samples
/// cannot have.
PlainTensors ToPlain(const std::vector<at::Tensor>& tensors);

/// Pushes the input or the target of a sample: a tensor or a list of tensors; nil if there is none.
void PushHalf(lua_State* L, const PlainTensors& half);

}  // namespace strata::lua
