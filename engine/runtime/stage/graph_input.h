// GraphInput: where the graph of a stage or of a recomputed segment begins.
//
// A leaf would not do. AccumulateGrad, which collects a leaf's gradient, copies it where it does
// not lie in memory as the leaf does: the layer before would see other strides than without a cut,
// and may give other bits.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

/// Records from here on what happens to `tensor`, which has no graph yet.
void BeginGraph(const at::Tensor& tensor);

/// After the backward: the gradient of such a tensor, as it came; an absent one where the tensor
/// was not used, or has no graph.
at::Tensor TakeGradient(const at::Tensor& tensor);

/// True for an absent gradient: the tensor was not used. Nothing behind it runs backward, as
/// without a cut, since zeros may become NaN on the way. An absent gradient is one element, -0,
/// repeated along all dims: added to another gradient, it changes nothing. The absent gradient of a
/// scalar, and one that came over NCCL, cannot be told from zeros: for these it is false.
bool IsAbsent(const at::Tensor& gradient);

}  // namespace strata
