// Linear's operator, which attention uses too.
#pragma once

#include "engine/layers/crossing.h"
#include "engine/layers/layer.h"

namespace strata {

/// x W^T + b over the last dim, the weight gradient going straight into Parameter::grad. `bias`
/// may be null.
at::Tensor ApplyLinear(const at::Tensor& x, const Parameter& weight, const Parameter* bias,
                       const Pass& pass);

/// A Linear layer with PyTorch's initial values and the parameters "weight" and, with `bias`,
/// "bias". `ends`: what happens to its input and its output when its parameters are shared.
std::unique_ptr<Layer> NewLinear(int64_t in_features, int64_t out_features, bool bias,
                                 Ends ends = {});

}  // namespace strata
