// Interleaved 1F1B with split backwards, in the order of torch's ScheduleInterleavedZeroBubble
// (after Qi et al., arXiv:2401.10241).
#include "engine/schedule/generators/idle_grid.h"

namespace strata::schedule {

// P ranks, v stages each, M micro-batches; a column is a time step. P = 3, v = 2, M = 3:
//
//   rank 0 | 0F0 0F1 0F2 3F0 3F1 3F2 .   .   3I0 3W0 3I1 3W1 3I2 3W2 0I0 0W0 0I1 0W1 0I2 0W2
//   rank 1 | .   1F0 1F1 1F2 4F0 4F1 .   4I0 4F2 4I1 4W0 4I2 4W1 1I0 4W2 1I1 1W0 1I2 1W1 1W2
//   rank 2 | .   .   2F0 2F1 2F2 5F0 5I0 5F1 5I1 5F2 5I2 5W0 2I0 5W1 2I1 5W2 2I2 2W0 2W1 2W2
//
// Interleaved 1F1B in which a backward passes on its input gradient before it computes W. So
// backwards return sooner, and P-1-r forwards ahead suffice. The last ranks, which have the first
// backwards, keep their weight gradients for the end, where the others still wait for backwards.
Program InterleavedZb(const Sizes& sizes) {
  return Alternate(sizes, {.name = "interleaved_zb", .lead = 1, .splits = true, .lag = 1});
}

}  // namespace strata::schedule
