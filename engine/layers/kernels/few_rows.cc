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
#include "engine/layers/kernels/avx512.h"

namespace strata::few_rows {
namespace {

constexpr int64_t kLanes = 16;         // floats in a register
constexpr int64_t kMostAtOnce = 8;     // rows whose sums are in registers at once
constexpr int64_t kGrain = 32 * 1024;  // the fewest elements of the matrix for one thread

constexpr __mmask16 kAllLanes = 0xffff;

constexpr __mmask16 FirstLanes(int64_t count) { return static_cast<__mmask16>((1 << count) - 1); }

/// Adds the products of M rows of x and N rows of w to `sums`, for those of the 16 columns from k
/// on that are in the mask.
template <int M, int N>
STRATA_AVX512_INLINE void AddProducts(__m512 (&sums)[M][N], const float* x, const float* w,
                                      int64_t depth, int64_t k, __mmask16 mask) {
  __m512 ws[N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) ws[n] = _mm512_maskz_loadu_ps(mask, w + n * depth + k);
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    const __m512 xs = _mm512_maskz_loadu_ps(mask, x + m * depth + k);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sums[m][n] = _mm512_fmadd_ps(xs, ws[n], sums[m][n]);
  }
}

/// The sum of the 16 lanes. (GCC 12 warns about its own _mm512_reduce_add_ps.)
STRATA_AVX512_INLINE float SumOfLanes(__m512 values) {
  alignas(64) float lanes[kLanes];
  _mm512_store_ps(lanes, values);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

/// y[m][n] = x[m] . w[n] + bias[n] for M rows of x and N of w.
template <int M, int N>
STRATA_AVX512 void Dots(const float* x, const float* w, const float* bias, float* y, int64_t depth,
                        int64_t y_columns) {
  __m512 sums[M][N];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sums[m][n] = _mm512_setzero_ps();
  }
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) AddProducts(sums, x, w, depth, k, kAllLanes);
  if (k < depth) AddProducts(sums, x, w, depth, k, FirstLanes(depth - k));
#pragma GCC unroll 8  // keeps the sums in registers
  for (int m = 0; m < M; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      y[m * y_columns + n] = SumOfLanes(sums[m][n]) + (bias ? bias[n] : 0);
    }
  }
}

/// The work of Sums() for those of the 16 columns from k on that are in the mask.
template <int M, int N>
STRATA_AVX512_INLINE void AddRows(const float* dy, const float* w, float* dx, int64_t dy_columns,
                                  int64_t columns, int64_t k, __mmask16 mask) {
  __m512 ws[N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) ws[n] = _mm512_maskz_loadu_ps(mask, w + n * columns + k);
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    float* to = dx + m * columns + k;
    __m512 sum = _mm512_maskz_loadu_ps(mask, to);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      sum = _mm512_fmadd_ps(_mm512_set1_ps(dy[m * dy_columns + n]), ws[n], sum);
    }
    _mm512_mask_storeu_ps(to, mask, sum);
  }
}

/// dx[m] += dy[m][0] w[0] + ... + dy[m][N-1] w[N-1] for M rows, in columns begin..end of w and dx.
template <int M, int N>
STRATA_AVX512 void Sums(const float* dy, const float* w, float* dx, int64_t dy_columns,
                        int64_t columns, int64_t begin, int64_t end) {
  int64_t k = begin;
  for (; k + kLanes <= end; k += kLanes) {
    AddRows<M, N>(dy, w, dx, dy_columns, columns, k, kAllLanes);
  }
  if (k < end) AddRows<M, N>(dy, w, dx, dy_columns, columns, k, FirstLanes(end - k));
}

using DotsFunction = decltype(&Dots<1, 1>);
using SumsFunction = decltype(&Sums<1, 1>);

/// The functions for 1, 2, ... rows.
template <int N, size_t... M>
constexpr std::array<DotsFunction, sizeof...(M)> DotsOf(std::index_sequence<M...>) {
  return {&Dots<M + 1, N>...};
}
template <int N, size_t... M>
constexpr std::array<SumsFunction, sizeof...(M)> SumsOf(std::index_sequence<M...>) {
  return {&Sums<M + 1, N>...};
}

// Dots(): 8 rows times 3 rows of the matrix use 24 of the 32 registers for sums.
// Sums(): 8 rows of the matrix at once save seven of eight passes over dx.
constexpr int64_t kDotsAtOnce = 3;
constexpr int64_t kSumsAtOnce = 8;
constexpr auto kRows = std::make_index_sequence<kMostAtOnce>();
constexpr auto kDots = DotsOf<kDotsAtOnce>(kRows);
constexpr auto kOneDot = DotsOf<1>(kRows);
constexpr auto kSums = SumsOf<kSumsAtOnce>(kRows);
constexpr auto kOneSum = SumsOf<1>(kRows);

/// Calls function(first row, number of rows) for groups of rows.
template <class Function>
void ForEachGroup(int64_t rows, const Function& function) {
  for (int64_t m = 0; m < rows; m += kMostAtOnce) function(m, std::min(kMostAtOnce, rows - m));
}

bool IsFloatMatrix(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat && tensor.dim() == 2 &&
         tensor.numel() > 0;
}

}  // namespace

bool Fits(const at::Tensor& rows, const at::Tensor& matrix) {
  return HasAvx512() && !at::GradMode::is_enabled() && IsFloatMatrix(rows) &&
         rows.size(0) <= kMostRows && IsFloatMatrix(matrix) && matrix.is_contiguous();
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
  at::parallel_for(0, columns, std::max<int64_t>(1, kGrain / depth), [&](int64_t n, int64_t end) {
    while (n < end) {
      const bool several = end - n >= kDotsAtOnce;
      const auto& dots = several ? kDots : kOneDot;
      ForEachGroup(rows, [&](int64_t m, int64_t count) {
        dots[count - 1](xs + m * depth, ws + n * depth, bs ? bs + n : nullptr, ys + m * columns + n,
                        depth, columns);
      });
      n += several ? kDotsAtOnce : 1;
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
  at::parallel_for(0, columns, std::max<int64_t>(1, kGrain / depth),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t n = 0; n < depth;) {
                       const bool several = depth - n >= kSumsAtOnce;
                       const auto& sums = several ? kSums : kOneSum;
                       ForEachGroup(rows, [&](int64_t m, int64_t count) {
                         sums[count - 1](dys + m * depth + n, ws + n * columns, dxs + m * columns,
                                         depth, columns, begin, end);
                       });
                       n += several ? kSumsAtOnce : 1;
                     }
                   });
  return result;
}

}  // namespace strata::few_rows
