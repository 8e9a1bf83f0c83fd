// CopyOnWrite(): a tensor that a user's function may write to while others read the original.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace strata {

/// A tensor with the values, the strides and the autograd history of `tensor`. It is neither a leaf
/// nor a view. The first write to it copies the memory, so the original never changes. Without a
/// write nothing is copied, with one exception: a tensor that is a small part of its memory is
/// copied at once, since a write would copy all of that memory.
///
/// Tensors without plain memory (sparse ones, for instance) are returned as they are. Threads may
/// call it at the same time.
at::Tensor CopyOnWrite(const at::Tensor& tensor);
std::vector<at::Tensor> CopyOnWrite(std::vector<at::Tensor> tensors);

}  // namespace strata
