// The dropout operator, which Dropout, attention and the transformer layers use.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/layers/axis/crossing.h"

namespace strata {

/// In training, sets each element to 0 with probability `p` and divides the others by 1 - p.
/// Otherwise returns `x` itself. Draws from the thread's generator (random.h), on CUDA too. If `x`
/// is a part of a whole tensor (`part`), it draws numbers for the whole tensor and uses those of
/// the part; so the result does not depend on the number of ranks.
at::Tensor ApplyDropout(const at::Tensor& x, double p, bool training, const Part& part = {});

/// ApplyDropout() of ReLU's output. On the CPU it takes one pass, and keeps one tensor for the
/// backward in place of two.
at::Tensor DroppedRelu(const at::Tensor& x, double p, bool training, const Part& part = {});

}  // namespace strata
