// Dropout and the sum at the end of a residual block, x + dropout(f), by our kernel (dropout.cu):
// one launch, forward and backward. Both draw the same numbers from a seed, so nothing is kept.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

/// The random numbers of a dropout: element i of the tensor has those of (seed, i).
struct Drops {
  double p = 0;  ///< below 1
  uint64_t seed = 0;
};

/// x + dropout(f). REQUIRES: AreForSum(x, f).
struct SumCall {
  at::Tensor x, f;
  Drops drops = {};
};

/// True if the kernels take x + f: tensors of one shape and type.
bool AreForSum(const at::Tensor& x, const at::Tensor& f);

/// The sum, differentiable once.
at::Tensor SumByKernel(const SumCall& call);

/// True if the kernel takes tensors of this type on their device. It takes them with any strides;
/// the result is contiguous.
bool IsForDropout(const at::Tensor& x);

/// dropout(x), differentiable once. REQUIRES: IsForDropout(x).
at::Tensor DropoutByKernel(const at::Tensor& x, const Drops& drops);

}  // namespace strata
