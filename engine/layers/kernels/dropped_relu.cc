#include "engine/layers/kernels/dropped_relu.h"

#include <immintrin.h>

#include <algorithm>

#include "engine/layers/kernels/avx512.h"

namespace strata {
namespace {

constexpr int64_t kLanes = 16;  // floats in a register

STRATA_AVX512 void Drop(const float* x, float scale, float* factors, float* y, int64_t count) {
  const __m512 scales = _mm512_set1_ps(scale), zero = _mm512_setzero_ps();
  for (int64_t i = 0; i < count; i += kLanes) {
    const auto lanes = static_cast<__mmask16>((1 << std::min(kLanes, count - i)) - 1);
    const __m512 given = _mm512_maskz_loadu_ps(lanes, x + i);
    const __mmask16 passes = _mm512_cmp_ps_mask(given, zero, _CMP_NLE_UQ);  // true of a NaN
    const __m512 kept = _mm512_maskz_loadu_ps(lanes, factors + i);
    const __m512 factor = _mm512_maskz_mul_ps(passes, kept, scales);
    _mm512_mask_storeu_ps(factors + i, lanes, factor);
    _mm512_mask_storeu_ps(y + i, lanes, _mm512_maskz_mul_ps(passes, given, factor));
  }
}

}  // namespace

bool DropRelu(const float* x, float scale, float* factors, float* y, int64_t count) {
  if (!HasAvx512()) return false;
  Drop(x, scale, factors, y, count);
  return true;
}

}  // namespace strata
