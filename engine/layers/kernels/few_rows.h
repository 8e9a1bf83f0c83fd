// Products of few rows with a large matrix, as a Linear layer computes them for a small
// micro-batch.
//
// Such products spend most of their time on reading the matrix, which MKL does at a third of the
// memory bandwidth. With 8 rows and a 9216x4096 weight on one core (15 GB/s), MKL takes 26 ms
// forward and 25 ms for the input's gradient; these kernels take 10 and 11 ms. They need AVX-512,
// or AVX2 with FMA; with neither Fits() is false.
//
// The order of summation of each element depends only on the shapes and on the instruction set, not
// on the number of threads. In TimesTransposed() it does not depend on the number of rows either.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace strata::few_rows {

/// The largest number of rows: 16 with AVX-512, 8 with AVX2, 0 with neither. With more rows
/// arithmetic takes longer than reading the matrix, and MKL is faster.
int64_t MostRows();

/// True when the functions below can take these tensors: fp32 on the CPU, two dims, at most
/// MostRows() rows, a contiguous matrix, and no autograd that has to record the product.
bool Fits(const at::Tensor& rows, const at::Tensor& matrix);

/// x (M, K) times the transpose of weight (N, K), plus bias (N) in each row: (M, N).
/// REQUIRES: Fits(x, weight); a bias is contiguous.
at::Tensor TimesTransposed(const at::Tensor& x, const at::Tensor& weight,
                           const std::optional<at::Tensor>& bias);

/// dy (M, N) times weight (N, K): (M, K). REQUIRES: Fits(dy, weight).
at::Tensor Times(const at::Tensor& dy, const at::Tensor& weight);

}  // namespace strata::few_rows
