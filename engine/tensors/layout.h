// How the elements of a tensor lie in memory, and how they are moved without changing that. Bits
// may depend on it: operators choose their kernels, and the order of their sums, by the strides.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

/// Whether the strides are those of a new tensor of this shape, also where a dim has one element.
bool HasDefaultStrides(const at::Tensor& tensor);

/// From the first element to the last one in memory, both counted: more than numel() where there
/// are holes, less where elements share memory.
int64_t ElementsSpanned(const at::Tensor& tensor);

/// The elements in one row: in the order of memory, without a copy, where they fill it without
/// holes; else in the order of the dims.
at::Tensor InOneRow(const at::Tensor& tensor);

/// The tensor of this shape and these strides of which InOneRow() gave `row`. Takes over the memory
/// of `row`, which has no holes, where the tensor has none.
at::Tensor FromOneRow(const at::Tensor& row, at::IntArrayRef sizes, at::IntArrayRef strides);

/// A copy with the same strides.
at::Tensor CloneAsItLies(const at::Tensor& tensor);

}  // namespace strata
