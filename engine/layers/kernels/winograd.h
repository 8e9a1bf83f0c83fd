// Convolutions of 3x3 windows by Winograd's algorithm F(2x2, 3x3), with AVX-512.
//
// A tile of 2x2 outputs takes 16 multiplications in place of 36: input and window are transformed
// to 4x4 places, multiplied place by place, and the sums over the channels transformed back.
// (A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv:1509.09308,
// section 4.1. The gradient of the window is the transposed algorithm, F(3x3, 2x2).)
//
// The sums are other ones than ATen's, and 1 to 3 times as far from exact ones: 2 to 8e-7 of the
// result's norm at 64 to 512 channels. (Tiles of 4x4 outputs would take 2.25 multiplications an
// output where these take 4, but their sums are some ten times as far off.)
//
// What is computed in this way depends on the processor, types, strides and shapes only, and each
// sum has one order, whatever the number of threads, so that all plans have the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace strata::winograd {

/// Whether a convolution of x (N, C, H, W) with weight (K, C, 3, 3), stride 1, zeros of 1 on all
/// sides, is computed here, with its gradients. That is so in fp32 on a CPU with AVX-512 where it
/// was measured to be faster: channels in multiples of 16, enough tiles to make up for transformed
/// weights, few outputs outside of the picture in the tiles at its edges.
bool Computes(const at::Tensor& x, const at::Tensor& weight);

/// (N, K, H, W); `bias` is (K). Nothing is recorded.
/// REQUIRES: Computes(x, weight).
at::Tensor Convolve(const at::Tensor& x, const at::Tensor& weight,
                    const std::optional<at::Tensor>& bias);

/// The gradient of x, (N, C, H, W), by the output's gradient dy (N, K, H, W).
/// REQUIRES: Computes(x, weight).
at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& weight);

/// dweight (K, C, 3, 3) += its gradient by dy (N, K, H, W). Where `overwrites`, what it was does
/// not matter.
/// REQUIRES: Computes(x, dweight), and dweight is contiguous.
void AddWeightGradient(const at::Tensor& dweight, const at::Tensor& dy, const at::Tensor& x,
                       bool overwrites);

}  // namespace strata::winograd
