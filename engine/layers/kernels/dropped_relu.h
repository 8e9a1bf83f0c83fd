// The values of ReLU with dropout behind it, in one pass.
#pragma once

#include <cstdint>

namespace strata {

/// For `count` elements: y = relu(x) factor, where `factors` has 1 for what dropout keeps and 0 for
/// what it drops, and factor = `scale` or 0. Then `factors` has what a gradient is multiplied by: 0
/// also where x is not positive. As in ATen, a NaN stays one.
void DropRelu(const float* x, float scale, float* factors, float* y, int64_t count);

}  // namespace strata
