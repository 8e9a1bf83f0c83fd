// The layer LayerNorm, which the transformer layers also use. norm.cc has the other norms too.
#pragma once

#include <memory>
#include <vector>

#include "engine/layers/axis/crossing.h"
#include "engine/layers/layer.h"

namespace strata {

/// A LayerNorm with PyTorch's initial values. `ends`: how input and output cross when the layer
/// works on a part of the sequence.
std::unique_ptr<Layer> NewLayerNorm(std::vector<int64_t> normalized_shape, double eps, bool affine,
                                    bool bias, Ends ends = {});

}  // namespace strata
