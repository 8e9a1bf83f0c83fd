// Between TensorSpec, which knows no torch, and tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/spec/tensor_spec.h"

namespace strata {

/// Throws ConfigError for a tensor whose type Strata does not know.
TensorSpec SpecOf(const at::Tensor& tensor);
TensorSpecs SpecsOf(const std::vector<at::Tensor>& tensors);
/// Whether the tensors are what the specs say, without making specs of them.
bool Fits(const std::vector<at::Tensor>& tensors, const TensorSpecs& specs);
/// New tensors of these specs, not initialised.
std::vector<at::Tensor> EmptyTensors(const TensorSpecs& specs, at::Device device);

}  // namespace strata
