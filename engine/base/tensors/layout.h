// Strides: how the elements of a tensor lie in memory, and operations that keep this. Operators
// choose their kernels, and the order of their sums, by the strides, so results may differ in their
// last bits between tensors that differ in strides alone.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

/// True if the strides are those of a new contiguous tensor of this shape. Unlike is_contiguous(),
/// this also compares the strides of dims with one element.
bool HasDefaultStrides(const at::Tensor& tensor);

/// The number of elements' places in memory from the first element to the last, both included. It
/// is more than numel() if there are holes, and less if elements share memory.
int64_t ElementsSpanned(const at::Tensor& tensor);

/// Returns the elements as a tensor with one dim. If they fill their memory without holes, the
/// result is that memory in its own order, not a copy. Otherwise the elements are copied in the
/// order of the dims.
at::Tensor InOneRow(const at::Tensor& tensor);

/// The inverse of InOneRow(): a tensor with these sizes and strides whose elements in one row are
/// `row`. It uses the memory of `row` if the strides leave no holes, otherwise new memory.
at::Tensor FromOneRow(const at::Tensor& row, at::IntArrayRef sizes, at::IntArrayRef strides);

/// A copy with the same strides.
at::Tensor CloneAsItLies(const at::Tensor& tensor);

}  // namespace strata
