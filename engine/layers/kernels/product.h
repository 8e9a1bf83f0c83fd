// Products of matrices, by the library that is faster on this processor.
//
// ATen multiplies with MKL, which takes its AVX-512 kernels on Intel's processors only. On another
// one that has AVX-512, LibTorch's own oneDNN is 2.1 to 2.4 times as fast (AMD Zen 5, 256 rows: 230
// GFLOP/s a core, MKL 105). Tensors on a GPU, half precision and products of few operations are
// ATen's everywhere.
//
// The library depends on the processor, the types, strides and shapes only, so that all plans have
// the same bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace strata::products {

/// In fp32, on the CPU, with elements.
bool IsFloatMatrix(const at::Tensor& t);

/// Whether oneDNN multiplies these two, in either order. Where autograd has to record the product
/// it does not.
bool UsesOneDnn(const at::Tensor& a, const at::Tensor& b);

/// a (M, K) times b (K, N): (M, N). Nothing is recorded.
at::Tensor Product(const at::Tensor& a, const at::Tensor& b);

/// sum (M, N) += a (M, K) times b (K, N). Where `overwrites`, what the sum was does not matter.
/// REQUIRES: all have the same type.
void Add(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool overwrites);

/// x (M, K) times the transpose of weight (N, K), plus bias (N) in each row: (M, N).
/// REQUIRES: UsesOneDnn(x, weight).
at::Tensor TimesTransposed(const at::Tensor& x, const at::Tensor& weight,
                           const std::optional<at::Tensor>& bias);

/// While one lives, products on the CPU that this thread asks for (these here, and at::mm, addmm,
/// bmm, baddbmm) take their memory and give zeros, as products of zeros are: for trials of what
/// layers allocate, in which they would take all the time. Errors are those of real ones. The first
/// one of a process registers kernels in the place of ATen's four, which ask whether one lives.
class Skipped {
 public:
  Skipped();
  ~Skipped();
  Skipped(const Skipped&) = delete;
  Skipped& operator=(const Skipped&) = delete;

 private:
  const bool before_;
};

/// For tests: while it lives, oneDNN multiplies on Intel's processors, too, whatever the sizes. It
/// needs AVX-512 all the same.
class WithOneDnn {
 public:
  WithOneDnn();
  ~WithOneDnn();
  WithOneDnn(const WithOneDnn&) = delete;
  WithOneDnn& operator=(const WithOneDnn&) = delete;
};

}  // namespace strata::products
