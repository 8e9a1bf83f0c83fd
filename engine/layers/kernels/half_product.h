// Matrix products in half precision on processors for which LibTorch has no fast ones.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata::half_products {

/// True if LibTorch has no fast products and convolutions of the type on this processor: of
/// bfloat16 without AVX-512, of float16 without AVX512-FP16.
bool IsSlow(at::ScalarType type);

/// The type in which a convolution of x should be computed: float32 if IsSlow(), else the own one.
at::ScalarType FastType(const at::Tensor& x);

/// True if Multiply() should compute the product of these matrices, or batches of matrices.
bool IsSlow(const at::Tensor& a, const at::Tensor& b);

/// result = beta * sum + alpha * (a b), for matrices or batches of matrices. Everything is computed
/// in float32 and rounded once. `sum` broadcasts to the result and may be the same tensor; it is
/// not read if beta is 0. REQUIRES: the shapes fit each other; IsSlow(a, b); `result` is not a or
/// b.
void Multiply(const at::Tensor& result, const at::Tensor& sum, const at::Tensor& a,
              const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha);

}  // namespace strata::half_products
