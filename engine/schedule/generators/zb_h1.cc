// ZB-H1 (Qi et al., arXiv:2401.10241, section 2.1): split backwards within the memory of 1F1B.
#include "engine/schedule/generators/idle_grid.h"

namespace strata::schedule {

// P ranks, M micro-batches; a column is a time step. P = 3, M = 4:
//
//   stage 0 | F0 F1 F2 .  .  I0 W0 F3 I1 W1 I2 W2 I3 W3
//   stage 1 | .  F0 F1 .  I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
//   stage 2 | .  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
//
// 1F1B with split backwards. Stage s runs P-1-s forwards ahead. Its W follow its I with a delay of
// s micro-batches, so that each stage has at most P activations, as many as 1F1B's first stage.
Program ZbH1(const Sizes& sizes) {
  return Alternate(sizes, {.name = "zb_h1", .lead = 1, .splits = true, .lag = 1});
}

}  // namespace strata::schedule
