#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/kernels/product.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <atomic>

#include "engine/base/check.h"
#include "engine/base/tensors/dry_run.h"
#include "engine/layers/kernels/avx512.h"

namespace at::native {

/// result = beta * result + alpha * a b, by oneDNN. LibTorch exports it but has no header for it.
void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta, float alpha);

}  // namespace at::native

namespace strata::products {
namespace {

/// The least number of multiplications for which oneDNN is used: a call of oneDNN takes 10 us, one
/// of ATen with MKL 1 us.
constexpr int64_t kFewest = 1 << 20;

std::atomic<int> forcing_onednn = 0;

bool IsIntel() {
  static const bool is_intel = __builtin_cpu_is("intel");
  return is_intel;
}

/// True if the matrix is contiguous row by row or column by column. oneDNN would copy other
/// matrices.
bool IsDense(const at::Tensor& t) { return t.is_contiguous() || t.t().is_contiguous(); }

/// True if oneDNN should compute this product, provided that autograd need not record it. Without
/// AVX-512 mkldnn_matmul() throws, whatever the type of its tensors.
bool SuitsOneDnn(const at::Tensor& a, const at::Tensor& b) {
  if (!HasAvx512()) return false;
  if (!IsFloatMatrix(a) || !IsFloatMatrix(b)) return false;
  if (!IsDense(a) || !IsDense(b)) return false;
  if (forcing_onednn.load(std::memory_order_relaxed) > 0) return true;
  return !IsIntel() && a.size(0) * b.numel() >= kFewest;
}

}  // namespace

bool IsFloatMatrix(const at::Tensor& t) {
  return t.device().is_cpu() && t.scalar_type() == at::kFloat && t.dim() == 2 && t.numel() > 0;
}

bool UsesOneDnn(const at::Tensor& a, const at::Tensor& b) {
  return !at::GradMode::is_enabled() && SuitsOneDnn(a, b);
}

at::Tensor Product(const at::Tensor& a, const at::Tensor& b) {
  if (!SuitsOneDnn(a, b) || DryRun::SkipsProducts()) return a.mm(b);
  at::Tensor product = at::empty({a.size(0), b.size(1)}, a.options());
  at::native::mkldnn_matmul(a, b, product, 0, 1);
  return product;
}

void Add(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool overwrites) {
  if (DryRun::SkipsProducts()) return;
  if (sum.is_contiguous() && SuitsOneDnn(a, b)) {
    at::native::mkldnn_matmul(a, b, sum, overwrites ? 0 : 1, 1);
    return;
  }
  at::Tensor result = sum;
  overwrites ? at::mm_out(result, a, b) : result.addmm_(a, b);
}

at::Tensor TimesTransposed(const at::Tensor& x, const at::Tensor& weight,
                           const std::optional<at::Tensor>& bias) {
  at::Tensor result = at::empty({x.size(0), weight.size(0)}, x.options());
  if (bias) result.copy_(bias->expand_as(result));
  if (DryRun::SkipsProducts()) return bias ? result : result.zero_();
  STRATA_CHECK(SuitsOneDnn(x, weight)) << x.sizes() << " " << weight.sizes();
  at::native::mkldnn_matmul(x, weight.t(), result, bias ? 1 : 0, 1);
  return result;
}

WithOneDnn::WithOneDnn() { ++forcing_onednn; }
WithOneDnn::~WithOneDnn() { --forcing_onednn; }

}  // namespace strata::products
