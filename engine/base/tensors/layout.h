// How the elements of a tensor lie in memory (its strides), and operations that keep it. Operators
// choose their kernels, and the order of their sums, by the strides. So bits may depend on them.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

/// True when the strides are those of a new tensor of this shape. Strides of dims with one element
/// count too.
bool HasDefaultStrides(const at::Tensor& tensor);

/// The number of places in memory from the first element to the last, both included. It is more
/// than numel() if there are holes, and less if elements share memory.
int64_t ElementsSpanned(const at::Tensor& tensor);

/// The elements as one row. If they fill their memory without holes, the row is that memory in its
/// order, not a copy. Otherwise the elements are copied in the order of the dims.
at::Tensor InOneRow(const at::Tensor& tensor);

/// The inverse of InOneRow(): the tensor of this shape and these strides whose row is `row`. It
/// uses the memory of `row` if the strides leave no holes, else new memory.
at::Tensor FromOneRow(const at::Tensor& row, at::IntArrayRef sizes, at::IntArrayRef strides);

/// A copy with the same strides.
at::Tensor CloneAsItLies(const at::Tensor& tensor);

}  // namespace strata
