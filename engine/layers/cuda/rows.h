// Rows of matrices that begin at multiples of 16 bytes, as the matrix units of GPUs load them. A
// product whose rows do not takes kernels of old GPUs: on one H100, GPT-2's head (8,192 rows, 768
// to 50,257 words, bf16) takes 15.1 ms forward and backward, and 2.6 with seven words more.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

/// How many elements a row of `out` elements lacks, where a product of `rows` rows of `in` elements
/// with `in` x `out` is large enough for another copy of its result to pay; else 0. Types that the
/// matrix units do not take lack nothing.
int64_t MissingOfRows(at::ScalarType type, int64_t rows, int64_t out, int64_t in);

/// The same of a result, (rows, out).
inline int64_t MissingOfRows(const at::Tensor& result, int64_t in) {
  return MissingOfRows(result.scalar_type(), result.size(0), result.size(1), in);
}

}  // namespace strata
