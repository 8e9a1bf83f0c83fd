// Computes the padding with which the rows of a matrix begin at multiples of 16 bytes. The matrix
// units of GPUs (tensor cores) load such rows. For other rows cuBLAS chooses kernels made for older
// GPUs: on one H100, GPT-2's head (8,192 rows, 768 to 50,257 words, bf16) takes 15.1 ms forward and
// backward, and 2.6 ms with seven more words.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

/// The number of elements to append to rows of `out` elements, in a product (rows, in) x (in, out),
/// so that they are aligned. Returns 0 if they are aligned already, if the product is too small to
/// pay for the additional copy of its result, or if the matrix units do not take `type`.
int64_t MissingOfRows(at::ScalarType type, int64_t rows, int64_t out, int64_t in);

/// The same for the tensor of the result, (rows, out).
inline int64_t MissingOfRows(const at::Tensor& result, int64_t in) {
  return MissingOfRows(result.scalar_type(), result.size(0), result.size(1), in);
}

}  // namespace strata
