// Tensors as plain bytes and back, for what reads samples without torch. Internal to lua/.
#pragma once

#include <ATen/core/Tensor.h>

#include <lua.hpp>
#include <vector>

#include "engine/data/data_script.h"

namespace strata::lua {

/// New tensors with these bytes.
std::vector<at::Tensor> ToTensors(const PlainTensors& plain);
/// Copies, from whatever device and in row-major order. Throws ConfigError for dtypes that samples
/// cannot have.
PlainTensors ToPlain(const std::vector<at::Tensor>& tensors);

/// Pushes an input, or a target: a tensor or a list of tensors; nil where there is none.
void PushHalf(lua_State* L, const PlainTensors& half);

}  // namespace strata::lua
