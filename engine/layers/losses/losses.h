// How class losses and the metric "accuracy" read outputs and labels: which dim of the output holds
// the classes, and which labels count.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "engine/layers/layer.h"

namespace strata {

/// PyTorch's default ignore_index: a label with this value is ignored.
inline constexpr int64_t kNoLabel = -100;

/// The dim of `output` that holds the classes. Labels are integers, in the shape of the output
/// without that dim:
///   output (N, C),          labels (N)           dim 1
///   output (N, C, d1, ...), labels (N, d1, ...)  dim 1, as in PyTorch
///   output (N, ..., C),     labels (N, ...)      the last dim: tokens (PyTorch needs a transpose)
/// If both forms fit it is `planned` (LayerSpec::class_dim), else dim 1. Throws ConfigError when no
/// form fits.
int64_t ClassDim(at::IntArrayRef output, const at::Tensor& labels, std::optional<int> planned);

/// Throws ConfigError unless all indices, on the host, are from 0 to count - 1. "expected a WHAT
/// from 0 to 95, got 97 (there are 96 WHOSE)".
void RequireIndices(const at::Tensor& indices, int64_t count, const char* what, const char* whose);

/// Counts the labels that equal the class with the greatest score. Labels of `ignore_index` are
/// left out.
Hits CountHits(const at::Tensor& output, const at::Tensor& labels, int64_t ignore_index,
               std::optional<int> planned);

}  // namespace strata
