// Matrix products, computed by MKL or oneDNN, whichever is faster on this processor.
//
// ATen multiplies with MKL, which uses its AVX-512 kernels on Intel's processors only. On other
// processors with AVX-512, the oneDNN inside LibTorch is 2.1 to 2.4 times as fast (AMD Zen 5, 256
// rows: 230 GFLOP/s per core, MKL 105). ATen multiplies tensors on a GPU, tensors in half
// precision, and small products.
//
// The choice of the library depends only on the processor and on the types, strides and shapes, so
// that all plans give the same bits. In a dry run (dry_run.h) nothing is multiplied.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace strata::products {

/// True for a matrix of float32 on the CPU that has elements.
bool IsFloatMatrix(const at::Tensor& t);

/// True if oneDNN computes the product of these two matrices (a b, or a b^T). False while autograd
/// records (GradMode is on).
bool UsesOneDnn(const at::Tensor& a, const at::Tensor& b);

/// Returns a (M, K) times b (K, N): (M, N). The product must not need autograd: oneDNN's is not
/// recorded.
at::Tensor Product(const at::Tensor& a, const at::Tensor& b);

/// sum (M, N) += a (M, K) times b (K, N), or = if `overwrites`; then the old values of `sum` are
/// not read.
/// REQUIRES: all have the same type.
void Add(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool overwrites);

/// Returns x (M, K) times the transpose of weight (N, K), plus bias (N) in each row: (M, N).
/// REQUIRES: UsesOneDnn(x, weight).
at::Tensor TimesTransposed(const at::Tensor& x, const at::Tensor& weight,
                           const std::optional<at::Tensor>& bias);

/// Replaces ATen's kernels of products on the CPU by those that compute slow products in half
/// precision by half_products. A process whose processor has slow ones does it at its start; tests
/// do it elsewhere. Further calls do nothing.
void RegisterHalfProducts();

/// For tests: while an object lives, oneDNN multiplies on Intel's processors too, and whatever the
/// sizes. AVX-512 is still needed.
class WithOneDnn {
 public:
  WithOneDnn();
  ~WithOneDnn();
  WithOneDnn(const WithOneDnn&) = delete;
  WithOneDnn& operator=(const WithOneDnn&) = delete;
};

}  // namespace strata::products
