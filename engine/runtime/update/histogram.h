// Histograms of tensors, as TensorBoard shows them.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/base/value.h"

namespace strata {

/// Of a tensor's elements divided by `divisor`, which are finite, as float32: {"min", "max", "num",
/// "sum", "sum_squares", "limits": [...], "counts": [...]}, TensorBoard's HistogramProto.
///
/// Bucket i has counts[i] elements that are below limits[i] and not below the limit before it. What
/// lies between two powers of two falls into eight buckets of equal width, so that a bucket is 7 to
/// 13 % wide; on each side of 0 one bucket has what is smaller than 2^-40. Empty buckets beside
/// each other are one, and there are none at the end.
Value HistogramOf(const at::Tensor& tensor, double divisor);

}  // namespace strata
