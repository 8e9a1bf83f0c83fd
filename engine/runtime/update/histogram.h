// HistogramOf(): histograms of tensors in the format that TensorBoard shows.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/base/value.h"

namespace strata {

/// Computes the histogram of a tensor's elements, which must be finite, divided by `divisor`, as
/// float32. Returns the fields of TensorBoard's HistogramProto: {"min", "max", "num", "sum",
/// "sum_squares", "limits": [...], "counts": [...]}.
///
/// Bucket i counts the elements in [limits[i - 1], limits[i]). The range between two powers of two
/// is divided into eight buckets of equal width, so that a bucket is 7 to 13 % wide. On each side
/// of 0, one bucket holds everything smaller than 2^-40. Neighbouring empty buckets are merged, and
/// empty buckets at the ends are left out.
Value HistogramOf(const at::Tensor& tensor, double divisor);

}  // namespace strata
