// LayerNorm, which the transformer layers use too.
#pragma once

#include <memory>
#include <vector>

#include "engine/layers/layer.h"

namespace strata {

std::unique_ptr<Layer> NewLayerNorm(std::vector<int64_t> normalized_shape, double eps, bool affine,
                                    bool bias);

}  // namespace strata
