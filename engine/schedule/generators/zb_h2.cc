// ZB-H2 (Qi et al., arXiv:2401.10241, section 2.2): no bubble, for twice the memory of 1F1B.
#include "engine/schedule/generators/idle_grid.h"

namespace strata::schedule {

// P ranks, M micro-batches; a column is a time step. P = 3, M = 5:
//
//   stage 0 | F0 F1 F2 F3 F4 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4 .  .
//   stage 1 | .  F0 F1 F2 I0 F3 I1 F4 I2 W0 I3 W1 I4 W2 W3 W4 .
//   stage 2 | .  .  F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 W1 W2 W3 W4
//
// Stage s runs 2(P-1-s) forwards ahead, which fill the time until the first backward returns. Its W
// follow its I with a delay of 2s micro-batches. Each stage has at most 2P-1 activations.
Program ZbH2(const Sizes& sizes) {
  return Alternate(sizes, {.name = "zb_h2", .lead = 2, .splits = true, .lag = 2});
}

}  // namespace strata::schedule
