// LayerNorm, which the transformer layers use too.
#pragma once

#include <memory>
#include <vector>

#include "engine/layers/crossing.h"
#include "engine/layers/layer.h"

namespace strata {

/// `ends`: what happens to its input and its output when it works on parts.
std::unique_ptr<Layer> NewLayerNorm(std::vector<int64_t> normalized_shape, double eps, bool affine,
                                    bool bias, Ends ends = {});

}  // namespace strata
