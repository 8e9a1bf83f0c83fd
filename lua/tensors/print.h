// Prints tensors as PyTorch does. Internal to lua/tensors/.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace strata::lua {

/// tensor([[0., 1.],
///         [2., 3.]])
/// Values have four decimals if one of them has a fraction. Of more than 1,000 elements, only the
/// first and last three of each dim are shown. dtype and shape follow if the text does not show
/// them.
std::string PrintTensor(const at::Tensor& tensor);

}  // namespace strata::lua
