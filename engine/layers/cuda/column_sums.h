// The gradient of a bias by our kernel (column_sums.cu): one launch.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

/// Adds the sums of the columns of `rows` (N, C) to `sums` (C) in float32. Returns false, and does
/// nothing, if the kernel does not take these tensors.
bool AddColumnSumsByKernel(const at::Tensor& rows, const at::Tensor& sums);

}  // namespace strata
