#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/kernels/product.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/addmm_meta_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_meta_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/bmm_meta_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/mm_meta_dispatch.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <atomic>

#include "engine/base/check.h"
#include "engine/base/tensors/dry_run.h"
#include "engine/layers/kernels/avx512.h"
#include "engine/layers/kernels/half_product.h"

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

at::Tensor Meta(const at::Tensor& t) {
  return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta));
}

/// A tensor on the CPU in the shape and type of `product`, one on the meta device.
at::Tensor EmptyOf(const at::Tensor& product) {
  return at::empty(product.sizes(), product.options().device(at::kCPU));
}

/// Kernels for CPU tensors that replace ATen's. They do what ATen's do, except that slow products
/// in half precision are computed by half_products. ATen's shape rules for the meta device give the
/// errors and the shapes.
at::Tensor Mm(const at::Tensor& a, const at::Tensor& b) {
  if (!half_products::IsSlow(a, b)) return at::cpu::mm(a, b);
  const at::Tensor result = EmptyOf(at::meta::mm(Meta(a), Meta(b)));
  half_products::Multiply(result, result, a, b, 0, 1);
  return result;
}

at::Tensor Bmm(const at::Tensor& a, const at::Tensor& b) {
  if (!half_products::IsSlow(a, b)) return at::cpu::bmm(a, b);
  const at::Tensor result = EmptyOf(at::meta::bmm(Meta(a), Meta(b)));
  half_products::Multiply(result, result, a, b, 0, 1);
  return result;
}

/// True if half_products computes sum + a b into a tensor of this type.
bool AddsSlowly(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  return half_products::IsSlow(a, b) && sum.scalar_type() == a.scalar_type();
}

at::Tensor AddMm(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  if (!AddsSlowly(sum, a, b)) return at::cpu::addmm(sum, a, b, beta, alpha);
  const at::Tensor result = EmptyOf(at::meta::addmm(Meta(sum), Meta(a), Meta(b), beta, alpha));
  half_products::Multiply(result, sum, a, b, beta, alpha);
  return result;
}

at::Tensor BaddBmm(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b,
                   const at::Scalar& beta, const at::Scalar& alpha) {
  if (!AddsSlowly(sum, a, b)) return at::cpu::baddbmm(sum, a, b, beta, alpha);
  const at::Tensor result = EmptyOf(at::meta::baddbmm(Meta(sum), Meta(a), Meta(b), beta, alpha));
  half_products::Multiply(result, sum, a, b, beta, alpha);
  return result;
}

at::Tensor& MmOut(const at::Tensor& a, const at::Tensor& b, at::Tensor& result) {
  const bool fits = result.scalar_type() == a.scalar_type() && half_products::IsSlow(a, b) &&
                    result.sizes() == at::meta::mm(Meta(a), Meta(b)).sizes();
  if (!fits) return at::cpu::mm_outf(a, b, result);
  half_products::Multiply(result, result, a, b, 0, 1);
  return result;
}

at::Tensor& AddMmInPlace(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b,
                         const at::Scalar& beta, const at::Scalar& alpha) {
  if (!AddsSlowly(sum, a, b)) return at::cpu::addmm_(sum, a, b, beta, alpha);
  const at::Tensor product = at::meta::mm(Meta(a), Meta(b));
  TORCH_CHECK(sum.sizes() == product.sizes(), "addmm_ expects ", product.sizes(), ", got ",
              sum.sizes());
  half_products::Multiply(sum, sum, a, b, beta, alpha);
  return sum;
}

/// Suppresses LibTorch's warning about kernels that replace others, which is intended here.
struct Quiet : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

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

/// Products in half precision must not be slow from the beginning.
[[maybe_unused]] const bool is_registered = [] {
  const bool is_slow = half_products::IsSlow(at::kBFloat16) || half_products::IsSlow(at::kHalf);
  if (is_slow) RegisterHalfProducts();
  return is_slow;
}();

}  // namespace

void RegisterHalfProducts() {
  static const torch::Library* const library = [] {
    Quiet quiet;
    const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
    auto* kernels =
        new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    kernels->impl("mm", Mm);
    kernels->impl("addmm", AddMm);
    kernels->impl("bmm", Bmm);
    kernels->impl("baddbmm", BaddBmm);
    kernels->impl("mm.out", MmOut);
    kernels->impl("addmm_", AddMmInPlace);
    return kernels;
  }();
  static_cast<void>(library);
}

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
