// Where LibTorch cannot multiply half precision by oneDNN, it uses a plain loop: 2 to 35 GFLOP/s
// per core, beside 100 for float32 (Xeon with AVX-512 hidden, 512 rows). So the operands are copied
// to float32 and multiplied by MKL. The copies are made in blocks: a tile of the result has up to
// kBlock rows and columns, and its sum runs over blocks of kBlock products. So the float32 memory
// is at most 3 MiB whatever the size of the matrices, and copying takes little time beside
// multiplying. Small matrices of a batch are copied and multiplied together, up to kElements
// elements at once. The blocks depend only on shapes, so that all plans give the same bits.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/kernels/half_product.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "engine/layers/kernels/avx512.h"

namespace strata::half_products {
namespace {

constexpr int64_t kBlock = 512;
constexpr int64_t kElements = 3 * kBlock * kBlock;

at::Tensor Block(const at::Tensor& matrix, int64_t row, int64_t rows, int64_t column,
                 int64_t columns) {
  return matrix.narrow(0, row, rows).narrow(1, column, columns);
}

at::Tensor Wide(const at::Tensor& t) { return t.to(at::kFloat); }

/// Writes beta * sum + alpha * product, rounded. `product` is float32 and is overwritten.
void Finish(const at::Tensor& result, const at::Tensor& sum, const at::Tensor& product,
            const at::Scalar& beta, const at::Scalar& alpha) {
  if (alpha.toDouble() != 1) product.mul_(alpha);
  if (beta.toDouble() != 0) product.add_(Wide(sum), beta);
  result.copy_(product);
}

/// Multiply() for two matrices. `sum` has the result's shape.
void MultiplyMatrices(const at::Tensor& result, const at::Tensor& sum, const at::Tensor& a,
                      const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
  const int64_t M = a.size(0), K = a.size(1), N = b.size(1);
  for (int64_t m = 0; m < M; m += kBlock) {
    const int64_t rows = std::min(kBlock, M - m);
    for (int64_t n = 0; n < N; n += kBlock) {
      const int64_t columns = std::min(kBlock, N - n);
      at::Tensor tile;
      for (int64_t k = 0; k < K; k += kBlock) {
        const int64_t depth = std::min(kBlock, K - k);
        const at::Tensor left = Wide(Block(a, m, rows, k, depth));
        const at::Tensor right = Wide(Block(b, k, depth, n, columns));
        k == 0 ? void(tile = left.mm(right)) : void(tile.addmm_(left, right));
      }
      if (K == 0) tile = at::zeros({rows, columns}, a.options().dtype(at::kFloat));
      Finish(Block(result, m, rows, n, columns), Block(sum, m, rows, n, columns), tile, beta,
             alpha);
    }
  }
}

}  // namespace

bool IsSlow(at::ScalarType type) {
  static const bool has_half = __builtin_cpu_supports("avx512fp16");
  if (type == at::kBFloat16) return !HasAvx512();
  return type == at::kHalf && !(HasAvx512() && has_half);
}

at::ScalarType FastType(const at::Tensor& x) {
  return x.is_cpu() && IsSlow(x.scalar_type()) ? at::kFloat : x.scalar_type();
}

bool IsSlow(const at::Tensor& a, const at::Tensor& b) {
  return a.device().is_cpu() && a.scalar_type() == b.scalar_type() && IsSlow(a.scalar_type());
}

void Multiply(const at::Tensor& result, const at::Tensor& sum, const at::Tensor& a,
              const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
  const at::Tensor whole = sum.expand(result.sizes());
  if (a.dim() == 2) return MultiplyMatrices(result, whole, a, b, beta, alpha);
  const int64_t count = a.size(0);
  const int64_t elements =
      a.size(1) * a.size(2) + b.size(1) * b.size(2) + result.size(1) * result.size(2);
  const int64_t most = std::max<int64_t>(1, kElements / std::max<int64_t>(1, elements));
  for (int64_t i = 0; i < count; i += most) {
    if (most == 1) {
      MultiplyMatrices(result[i], whole[i], a[i], b[i], beta, alpha);
      continue;
    }
    const int64_t some = std::min(most, count - i);
    const auto part = [&](const at::Tensor& t) { return t.narrow(0, i, some); };
    Finish(part(result), part(whole), Wide(part(a)).bmm(Wide(part(b))), beta, alpha);
  }
}

}  // namespace strata::half_products
