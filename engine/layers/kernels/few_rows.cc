// TimesTransposed(), y = x W^T: a thread has some rows of W, which are columns of y. It reads a few
// rows of W at a time (kDotColumns) and computes their dot products with up to kDotRows rows of x,
// all sums in registers.
//
// Times(), dx = dy W: a thread has some columns of W and dx. It adds eight rows of W at a time,
// times their elements of dy, to dx, so that dx is read and written once per eight rows.
//
// Both read W from memory once, in the order in which it lies there. Every element is summed in an
// order that does not depend on the threads.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/kernels/few_rows.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/tensors/dry_run.h"
#include "engine/layers/kernels/avx512.h"
#include "engine/layers/kernels/product.h"

namespace strata::few_rows {
namespace {

constexpr int64_t kGrain = 32 * 1024;  // the fewest elements of the matrix for one thread
constexpr size_t kMostAtOnce = 8;      // the most rows that a kernel takes
/// The number of rows of the matrix that Times() adds at once. It saves seven of eight passes over
/// dx.
constexpr int64_t kSumsAtOnce = 8;

using DotsFunction = void (*)(const float* x, const float* w, const float* bias, float* y,
                              int64_t depth, int64_t y_columns);
using SumsFunction = void (*)(const float* dy, const float* w, float* dx, int64_t dy_columns,
                              int64_t columns, int64_t begin, int64_t end);

/// The kernels of few_rows_kernels.inc for one instruction set. Element i of an array is the kernel
/// for i + 1 rows.
struct Kernels {
  int64_t most_rows, dots_at_once;
  std::array<DotsFunction, kMostAtOnce> dots, one_dot;
  std::array<SumsFunction, kMostAtOnce> sums, one_sum;
};

/// Selects all lanes of a register, in place of a mask.
constexpr struct All {
} kAll;

// 8 rows times 3 rows of the matrix use 24 of 32 registers for sums.
namespace with_avx512 {

using Vec = __m512;
constexpr int64_t kLanes = 16;
constexpr int kDotRows = 8, kDotColumns = 3;

#define STRATA_SIMD STRATA_AVX512
#define STRATA_SIMD_INLINE STRATA_AVX512_INLINE
STRATA_SIMD_INLINE __mmask16 First(int64_t count) {
  return static_cast<__mmask16>((1 << count) - 1);
}
STRATA_SIMD_INLINE Vec Load(const float* from, All) { return _mm512_loadu_ps(from); }
STRATA_SIMD_INLINE Vec Load(const float* from, __mmask16 lanes) {
  return _mm512_maskz_loadu_ps(lanes, from);
}
STRATA_SIMD_INLINE void Store(float* to, Vec values, All) { _mm512_storeu_ps(to, values); }
STRATA_SIMD_INLINE void Store(float* to, Vec values, __mmask16 lanes) {
  _mm512_mask_storeu_ps(to, lanes, values);
}
STRATA_SIMD_INLINE Vec Zero() { return _mm512_setzero_ps(); }
STRATA_SIMD_INLINE Vec Broadcast(float value) { return _mm512_set1_ps(value); }
STRATA_SIMD_INLINE Vec Add(Vec sum, Vec a, Vec b) { return _mm512_fmadd_ps(a, b, sum); }
#include "engine/layers/kernels/few_rows_kernels.inc"
#undef STRATA_SIMD
#undef STRATA_SIMD_INLINE

}  // namespace with_avx512

// 4 rows times 3 rows of the matrix use 12 of 16 registers for sums.
namespace with_avx2 {

using Vec = __m256;
constexpr int64_t kLanes = 8;
constexpr int kDotRows = 4, kDotColumns = 3;

#define STRATA_SIMD STRATA_AVX2
#define STRATA_SIMD_INLINE STRATA_AVX2_INLINE
STRATA_SIMD_INLINE __m256i First(int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
STRATA_SIMD_INLINE Vec Load(const float* from, All) { return _mm256_loadu_ps(from); }
STRATA_SIMD_INLINE Vec Load(const float* from, __m256i lanes) {
  return _mm256_maskload_ps(from, lanes);
}
STRATA_SIMD_INLINE void Store(float* to, Vec values, All) { _mm256_storeu_ps(to, values); }
STRATA_SIMD_INLINE void Store(float* to, Vec values, __m256i lanes) {
  _mm256_maskstore_ps(to, lanes, values);
}
STRATA_SIMD_INLINE Vec Zero() { return _mm256_setzero_ps(); }
STRATA_SIMD_INLINE Vec Broadcast(float value) { return _mm256_set1_ps(value); }
STRATA_SIMD_INLINE Vec Add(Vec sum, Vec a, Vec b) { return _mm256_fmadd_ps(a, b, sum); }
#include "engine/layers/kernels/few_rows_kernels.inc"
#undef STRATA_SIMD
#undef STRATA_SIMD_INLINE

}  // namespace with_avx2

const Kernels& KernelsHere() { return HasAvx512() ? with_avx512::kKernels : with_avx2::kKernels; }

/// Calls function(first row, number of rows) for groups of at most `most` rows.
template <class Function>
void ForEachGroup(int64_t rows, int64_t most, const Function& function) {
  for (int64_t m = 0; m < rows; m += most) function(m, std::min(most, rows - m));
}

}  // namespace

int64_t MostRows() { return HasAvx512() ? 16 : HasAvx2() ? 8 : 0; }

bool Fits(const at::Tensor& rows, const at::Tensor& matrix) {
  return !at::GradMode::is_enabled() && !DryRun::SkipsProducts() && products::IsFloatMatrix(rows) &&
         rows.size(0) <= MostRows() && products::IsFloatMatrix(matrix) && matrix.is_contiguous();
}

at::Tensor TimesTransposed(const at::Tensor& x, const at::Tensor& weight,
                           const std::optional<at::Tensor>& bias) {
  const int64_t rows = x.size(0), depth = x.size(1), columns = weight.size(0);
  STRATA_CHECK(weight.size(1) == depth) << weight.sizes() << " for " << x.sizes();
  at::Tensor result = at::empty({rows, columns}, x.options());
  const at::Tensor dense = x.contiguous();
  const float* xs = dense.const_data_ptr<float>();
  const float* ws = weight.const_data_ptr<float>();
  const float* bs = bias ? bias->const_data_ptr<float>() : nullptr;
  float* ys = result.mutable_data_ptr<float>();
  const Kernels& kernels = KernelsHere();
  at::parallel_for(0, columns, std::max<int64_t>(1, kGrain / depth), [&](int64_t n, int64_t end) {
    while (n < end) {
      const bool several = end - n >= kernels.dots_at_once;
      const auto& dots = several ? kernels.dots : kernels.one_dot;
      ForEachGroup(rows, kernels.most_rows, [&](int64_t m, int64_t count) {
        dots[count - 1](xs + m * depth, ws + n * depth, bs ? bs + n : nullptr, ys + m * columns + n,
                        depth, columns);
      });
      n += several ? kernels.dots_at_once : 1;
    }
  });
  return result;
}

at::Tensor Times(const at::Tensor& dy, const at::Tensor& weight) {
  const int64_t rows = dy.size(0), depth = dy.size(1), columns = weight.size(1);
  STRATA_CHECK(weight.size(0) == depth) << weight.sizes() << " for " << dy.sizes();
  at::Tensor result = at::empty({rows, columns}, dy.options()).zero_();
  const at::Tensor dense = dy.contiguous();
  const float* dys = dense.const_data_ptr<float>();
  const float* ws = weight.const_data_ptr<float>();
  float* dxs = result.mutable_data_ptr<float>();
  const Kernels& kernels = KernelsHere();
  at::parallel_for(0, columns, std::max<int64_t>(1, kGrain / depth),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t n = 0; n < depth;) {
                       const bool several = depth - n >= kSumsAtOnce;
                       const auto& sums = several ? kernels.sums : kernels.one_sum;
                       ForEachGroup(rows, kernels.most_rows, [&](int64_t m, int64_t count) {
                         sums[count - 1](dys + m * depth + n, ws + n * columns, dxs + m * columns,
                                         depth, columns, begin, end);
                       });
                       n += several ? kSumsAtOnce : 1;
                     }
                   });
  return result;
}

}  // namespace strata::few_rows
