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

/// After the backward: the gradient of such a tensor, as it came; zeros where nobody used it.
at::Tensor TakeGradient(const at::Tensor& tensor);

}  // namespace strata
