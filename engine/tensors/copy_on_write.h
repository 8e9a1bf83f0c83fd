// CopyOnWrite: a tensor for somebody who may write to it, while others go on reading it.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace strata {

/// The same values with the same strides, at the same place of autograd's graph, but no leaf and no
/// view: who writes to it copies the memory first, and nobody else sees what is written. Without a
/// write nothing is copied, but where the tensor is a small part of its memory, for a write would
/// copy all of that.
///
/// A tensor without plain memory (sparse, for one) is given as it is.
///
/// For several threads at once.
at::Tensor CopyOnWrite(const at::Tensor& tensor);
std::vector<at::Tensor> CopyOnWrite(std::vector<at::Tensor> tensors);

}  // namespace strata
