// The linear operator and the layer Linear, which attention and the transformer layers also use.
#pragma once

#include <optional>
#include <span>

#include "engine/layers/axis/crossing.h"
#include "engine/layers/layer.h"

namespace strata {

/// x W^T + b over the last dim of x. The weight gradient is added straight into Parameter::grad.
/// `bias` may be null. A low-rank part of the weight is added (low_rank.h).
at::Tensor ApplyLinear(const at::Tensor& x, const Parameter& weight, const Parameter* bias,
                       const Pass& pass);

/// The weights of Linear layers without bias as one, with the outputs of one behind those of the
/// other, so that one product computes all. None unless they learn and lie side by side in the
/// stage's flat buffers.
std::optional<Parameter> JoinedWeights(std::span<Layer* const> linears);

/// A Linear layer with PyTorch's initial values. Its parameters are "weight" and, with `bias`,
/// "bias". `ends`: how input and output cross when the ranks of the model axis share the
/// parameters.
std::unique_ptr<Layer> NewLinear(int64_t in_features, int64_t out_features, bool bias,
                                 Ends ends = {});

}  // namespace strata
