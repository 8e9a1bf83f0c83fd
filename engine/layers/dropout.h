// Dropout's operator, which the transformer layers use too.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

/// In training sets each element to 0 with probability `p` and divides the others by 1 - p; else
/// gives `x` itself. Draws from the thread's generator (random.h), on CUDA too.
at::Tensor ApplyDropout(const at::Tensor& x, double p, bool training);

}  // namespace strata
