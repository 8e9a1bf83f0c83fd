// CopyOnWrite(): a tensor that a user's function may write to while others read the original.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace strata {

/// Returns a tensor with the values, the strides and the autograd history of `tensor`. It is
/// neither a leaf nor a view. The first write to it copies the memory, so the original never
/// changes. Without a write nothing is copied, with two exceptions: a tensor that spans less than
/// half of its memory is copied at once, since a write would copy all of that memory; and so is one
/// whose memory is managed by somebody else.
///
/// Tensors without a storage (sparse ones, for instance) are returned unchanged. Several threads
/// may call this at the same time.
at::Tensor CopyOnWrite(const at::Tensor& tensor);
std::vector<at::Tensor> CopyOnWrite(std::vector<at::Tensor> tensors);

}  // namespace strata
