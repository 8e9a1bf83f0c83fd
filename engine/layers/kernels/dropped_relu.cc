#include "engine/layers/kernels/dropped_relu.h"

#include "engine/layers/kernels/avx512.h"

namespace strata {

STRATA_WIDEST void DropRelu(const float* __restrict x, float scale, float* __restrict factors,
                            float* __restrict y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const bool passes = !(x[i] <= 0);  // true for a NaN
    const float factor = passes ? factors[i] * scale : 0;
    factors[i] = factor;
    y[i] = passes ? x[i] * factor : 0;
  }
}

}  // namespace strata
