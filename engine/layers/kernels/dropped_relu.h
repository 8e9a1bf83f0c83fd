// Computes ReLU followed by dropout in one pass over the elements.
#pragma once

#include <cstdint>

namespace strata {

/// Computes y = relu(x) * factors * scale for `count` elements. On entry `factors` is 1 where
/// dropout keeps an element and 0 where it drops it. On return `factors` holds the derivative of y:
/// `scale` where the element is kept and x is positive, else 0. As in ATen, a NaN in x counts as
/// positive and gives NaN.
void DropRelu(const float* x, float scale, float* factors, float* y, int64_t count);

}  // namespace strata
