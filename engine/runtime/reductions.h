// Numbers about tensors whose bits depend on nothing but the tensor: not on threads, not on cuts.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace strata {

/// The sum of squares, in double. fp32 on the CPU: chunks of fixed size, each with a fixed pattern
/// of partial sums, added in order; chunks run in parallel. (linalg_vector_norm in fp32 is off by
/// 4.5e-3 on 57M values, and in double takes ten times as long.) REQUIRES: contiguous.
double SumOfSquares(const at::Tensor& tensor);

/// 16 hex digits of the tensor's bits.
std::string BitDigest(const at::Tensor& tensor);

}  // namespace strata
