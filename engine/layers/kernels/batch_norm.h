// A faster replacement of at::batch_norm in training mode. ATen adds up a channel's values one
// after the other; this kernel uses 16 independent sums. For 8x64x32x32 floats on one core of an
// AMD Zen 5 the forward takes 0.68 ms in ATen and 0.15 ms here. (A 3x3 convolution of the same
// tensor takes 2.6 ms.)
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace strata {

/// The running statistics, which BatchNormByBatch() moves towards those of the batch by the share
/// `momentum`. Undefined tensors mean that there are none.
struct RunningStatistics {
  at::Tensor mean, variance;  ///< (C)
  double momentum = 0;
};

/// Normalizes each channel of x (N, C, ...) by its mean and variance in x, then multiplies by
/// weight (C) and adds bias (C); differentiable. Sums are in double as in ATen, but in another
/// order. It calls ATen's function for dtypes other than float32, other devices, non-contiguous
/// tensors, channels of fewer than 8 values per sample, and on processors without AVX2.
at::Tensor BatchNormByBatch(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, const RunningStatistics& running,
                            double eps);

}  // namespace strata
