#include "engine/layers/kernels/dropped_relu.h"

namespace strata {

/// The compiler makes one of each: it takes the widest registers that the processor has.
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"))) void DropRelu(
    const float* __restrict x, float scale, float* __restrict factors, float* __restrict y,
    int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const bool passes = !(x[i] <= 0);  // a NaN does
    const float factor = passes ? factors[i] * scale : 0;
    factors[i] = factor;
    y[i] = passes ? x[i] * factor : 0;
  }
}

}  // namespace strata
