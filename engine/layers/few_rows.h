// Products of few rows with a large matrix: what a Linear layer does with a small micro-batch.
//
// They are bound by reading the matrix, which MKL does at a third of the memory's rate: with 8 rows
// and 9216x4096 weights on one core (15 GB/s) it takes 26 ms forward and 25 ms for the input's
// gradient, these kernels 10 and 11. They are made for AVX-512; elsewhere Fits() is false.
//
// Every element is summed in an order that depends on nothing but the shapes: not on the number of
// threads, and in TimesTransposed() not on the other rows either.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace strata::few_rows {

/// More rows than this are bound by arithmetic, where MKL is better.
inline constexpr int64_t kMostRows = 16;

/// Whether the functions below take these: fp32 on the CPU, two dims, at most kMostRows rows, the
/// matrix contiguous, and no autograd that should see it.
bool Fits(const at::Tensor& rows, const at::Tensor& matrix);

/// x (M, K) times the transpose of weight (N, K), plus bias (N) to each row: (M, N).
/// REQUIRES: Fits(x, weight); a bias is contiguous.
at::Tensor TimesTransposed(const at::Tensor& x, const at::Tensor& weight,
                           const std::optional<at::Tensor>& bias);

/// dy (M, N) times weight (N, K): (M, K). REQUIRES: Fits(dy, weight).
at::Tensor Times(const at::Tensor& dy, const at::Tensor& weight);

}  // namespace strata::few_rows
