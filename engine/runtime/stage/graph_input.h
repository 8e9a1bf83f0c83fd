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

/// After the backward: the gradient of such a tensor, as it came. Where nobody used the tensor, an
/// absent one.
at::Tensor TakeGradient(const at::Tensor& tensor);

/// Whether nobody gave this gradient: then nothing behind it runs backward, as without a cut, for a
/// gradient of zeros may become NaN on the way. An absent gradient is one -0, which changes nothing
/// that it is added to, repeated along all dims (a scalar's, and one that came over NCCL, are zeros
/// like others).
bool IsAbsent(const at::Tensor& gradient);

}  // namespace strata
