// The dropout operator, which Dropout, attention and the transformer layers use.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "engine/layers/axis/crossing.h"
#include "engine/layers/layer.h"

namespace strata {

/// In training, sets each element to 0 with probability `p` and divides the others by 1 - p.
/// Otherwise returns `x` itself. It draws from the thread's generator (random.h), on CUDA too. If
/// `x` is one rank's part of a tensor (`part`), it draws the numbers of the whole tensor and uses
/// those of the part. So the result does not depend on the number of ranks.
at::Tensor ApplyDropout(const at::Tensor& x, double p, bool training, const Part& part = {});

/// ApplyDropout(relu(x)). On the CPU this keeps one tensor for the backward instead of two, and
/// mostly takes a single pass over the elements.
at::Tensor DroppedRelu(const at::Tensor& x, double p, bool training, const Part& part = {});

/// The probability of a layer Dropout that draws for its own tensor alone; none for other layers.
std::optional<double> DropoutOf(const Layer& layer);

}  // namespace strata
