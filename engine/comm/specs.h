// Conversion between TensorSpec (shape and dtype, torch-free) and torch's tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/base/fields/tensor_spec.h"

namespace strata {

/// The tensor's shape and dtype. Throws ConfigError for a dtype that Strata does not know.
TensorSpec SpecOf(const at::Tensor& tensor);
TensorSpecs SpecsOf(const std::vector<at::Tensor>& tensors);
/// True when the tensors have the specs' shapes and dtypes. Cheaper than comparing SpecsOf().
bool Fits(const std::vector<at::Tensor>& tensors, const TensorSpecs& specs);
/// New tensors of these specs, not initialised.
std::vector<at::Tensor> EmptyTensors(const TensorSpecs& specs, at::Device device);

}  // namespace strata
