// GPipe (Huang et al., arXiv:1811.06965, section 2.2): all forwards, then all backwards.
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/generators/idle_grid.h"

namespace strata::schedule {

// P ranks, M micro-batches; a column is a time step. P = 3, M = 4:
//
//   stage 0 | F0 F1 F2 F3 .  .  .  .  B0 B1 B2 B3
//   stage 1 | .  F0 F1 F2 F3 .  .  B0 B1 B2 B3 .
//   stage 2 | .  .  F0 F1 F2 F3 B0 B1 B2 B3 .  .
//
// Forward m of stage s is at step m+s. The last stage turns around after M+P-1 steps; stage s is
// P-1-s steps behind it.
Program GPipe(const Sizes& sizes) {
  const int P = sizes.ranks, M = sizes.micro_batches;
  Program program = IdleGrid("gpipe", LoopMap(P, 1), P, M, 2 * (M + P - 1));
  for (int s = 0; s < P; ++s) {
    for (int m = 0; m < M; ++m) {
      program.rows[s][m + s] = MakeAction(s, Kind::kForward, m);
      program.rows[s][(M + P - 1) + m + (P - 1 - s)] = MakeAction(s, Kind::kBackward, m);
    }
  }
  return program;
}

}  // namespace strata::schedule
