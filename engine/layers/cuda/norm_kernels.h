// LayerNorm and RMSNorm by our kernels (norm.cu), also of the sum at the end of a residual block:
// one launch forward; backward one for the gradients of all rows, and one that adds up those of
// weight and bias.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "engine/layers/cuda/dropout_kernels.h"
#include "engine/layers/layer.h"

namespace strata {

struct NormCall {
  bool centred = true;                ///< LayerNorm; false: RMSNorm
  int64_t width = 0;                  ///< elements of a row
  const Parameter* weight = nullptr;  ///< null: none
  const Parameter* bias = nullptr;
  double eps = 0;
};

/// The norm of x, differentiable once; none if the kernels do not take these tensors. The gradients
/// of weight and bias are added straight to Parameter::grad if the pass collects weight gradients.
std::optional<at::Tensor> NormByKernel(const at::Tensor& x, const NormCall& call, const Pass& pass);

struct SumAndNorm {
  at::Tensor sum, norm;
};

/// The sum and its norm, with the bits of SumByKernel() and then NormByKernel(). None if
/// NormByKernel() does not take the sum.
std::optional<SumAndNorm> SumAndNormByKernel(const SumCall& sum, const NormCall& call,
                                             const Pass& pass);

}  // namespace strata
