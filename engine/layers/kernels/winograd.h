// Convolutions of 3x3 windows by Winograd's algorithm F(2x2, 3x3), with AVX-512.
//
// A tile of 2x2 outputs takes 16 multiplications in place of 36: input and window are transformed
// to 4x4 places, multiplied place by place, and the sums over the channels transformed back.
// (A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv:1509.09308,
// section 4.1. The gradient of the window is the transposed algorithm, F(3x3, 2x2).)
//
// Without it a step of models/alexnet.lua takes 1.23 times as long, and a step of models/resnet.lua
// with --stem=cifar --pixels=32 takes 1.40 times as long (processor seconds of one core of an Intel
// Xeon).
//
// The results differ from ATen's by rounding, and their error is 1 to 3 times ATen's: 2e-7 to 8e-7
// of the result's norm at 64 to 512 channels. (Tiles of 4x4 outputs would need 2.25 multiplications
// per output instead of 4, but their error is about ten times as large.)
//
// Whether this algorithm is used depends only on the processor, types, strides and shapes. Each sum
// has one order, whatever the number of threads. So all plans give the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace strata::winograd {

/// True if the functions below compute the convolution of x (N, C, H, W) with weight (K, C, 3, 3),
/// with stride 1 and zero padding of 1 on all sides, and its gradients. This holds for contiguous
/// float32 tensors on a CPU with AVX-512, while autograd does not record, for the sizes where it
/// was measured to be faster: at least 48 channels in multiples of 16, enough tiles to make up for
/// transforming the weights, and few tile outputs beyond the edges of the image.
bool Computes(const at::Tensor& x, const at::Tensor& weight);

/// Returns the convolution, (N, K, H, W); `bias` is (K). Autograd does not record it.
/// REQUIRES: Computes(x, weight).
at::Tensor Convolve(const at::Tensor& x, const at::Tensor& weight,
                    const std::optional<at::Tensor>& bias);

/// Returns the gradient of x, (N, C, H, W), from the output's gradient dy (N, K, H, W).
/// REQUIRES: Computes(x, weight).
at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& weight);

/// Adds the weight gradient that follows from dy (N, K, H, W) to dweight (K, C, 3, 3). If
/// `overwrites`, stores it instead; then the old values are not read. REQUIRES: Computes(x,
/// dweight), and dweight is contiguous.
void AddWeightGradient(const at::Tensor& dweight, const at::Tensor& dy, const at::Tensor& x,
                       bool overwrites);

}  // namespace strata::winograd
