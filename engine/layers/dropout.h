// Dropout's operator, which the transformer layers use too.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/layers/crossing.h"

namespace strata {

/// In training sets each element to 0 with probability `p` and divides the others by 1 - p; else
/// gives `x` itself. Draws from the thread's generator (random.h), on CUDA too. When `x` is part of
/// a whole, the numbers of the whole are drawn and those of the part used.
at::Tensor ApplyDropout(const at::Tensor& x, double p, bool training, const Part& part = {});

}  // namespace strata
