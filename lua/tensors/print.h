// Tensors as PyTorch prints them. Internal to lua/tensors/.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace strata::lua {

/// tensor([[0., 1.],
///         [2., 3.]])
/// Four decimals where a value has a fraction; more than 1,000 elements show the first and the last
/// three of each dim. dtype and shape follow where the text alone does not tell them.
std::string PrintTensor(const at::Tensor& tensor);

}  // namespace strata::lua
