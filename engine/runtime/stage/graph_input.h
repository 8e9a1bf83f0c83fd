// GraphInput: the node at which the autograd graph of a stage or of a recomputed segment begins.
//
// A leaf would not do. AccumulateGrad, which collects a leaf's gradient, copies it if its layout
// differs from the leaf's. The layer before would then see other strides than without a cut, and
// might give other bits.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

/// Starts to record operations on `tensor`, which must have no graph yet.
void BeginGraph(const at::Tensor& tensor);

/// True after BeginGraph(): the node of the tensor is that of an input.
bool BeginsGraph(const at::Tensor& tensor);

/// Called after the backward: returns the gradient of such a tensor unchanged, or an absent
/// gradient if the tensor was not used or has no graph.
at::Tensor TakeGradient(const at::Tensor& tensor);

/// True for an absent gradient, which means that the tensor was not used. No backward runs for it,
/// as would be the case without a cut; zeros might become NaN on the way. It is represented by one
/// element, -0, repeated along all dims; adding it to another gradient changes nothing. False for
/// the absent gradient of a scalar and for gradients received over NCCL, which cannot be told from
/// zeros.
bool IsAbsent(const at::Tensor& gradient);

}  // namespace strata
