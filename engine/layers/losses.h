// How class losses and the metric "accuracy" read outputs and labels.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/layers/layer.h"

namespace strata {

/// PyTorch's ignore_index: such a label is not counted.
inline constexpr int64_t kNoLabel = -100;

/// The dim of `output` that holds the classes. Labels are integers in the shape of the output
/// without that dim:
///   output (N, C),          labels (N)           dim 1
///   output (N, C, d1, ...), labels (N, d1, ...)  dim 1, PyTorch's form; it holds where both fit
///   output (N, ..., C),     labels (N, ...)      the last: tokens; PyTorch would want a transpose
/// Throws ConfigError where neither fits.
int64_t ClassDim(at::IntArrayRef output, const at::Tensor& labels);

/// The greatest score of the class dim against the label.
Hits CountHits(const at::Tensor& output, const at::Tensor& labels, int64_t ignore_index);

}  // namespace strata
