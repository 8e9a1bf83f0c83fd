// 1F1B (Narayanan et al., arXiv:2104.04473, section 2.2.1; PipeDream-Flush), with the idle steps of
// DeepSpeed's TrainSchedule (deepspeed/runtime/pipe/schedule.py).
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/generators/idle_grid.h"

namespace strata::schedule {

// P ranks, M micro-batches; a column is a time step. P = 3, M = 4:
//
//   stage 0 | F0 .  F1 .  F2 B0 F3 B1 .  B2 .  B3
//   stage 1 | .  F0 .  F1 B0 F2 B1 F3 B2 .  B3 .
//   stage 2 | .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .
//
// A stage runs a forward every other step: forward m of stage s is at step 2m+s. It runs backwards
// in the steps between: the last stage P-1 right after the forward, stage s P-1-s steps after the
// last stage, at 2m + 2P-1-s.
Program OneFOneB(const Sizes& sizes) {
  const int P = sizes.ranks, M = sizes.micro_batches;
  Program program = IdleGrid("1f1b", LoopMap(P, 1), P, M, 2 * (M + P - 1));
  for (int s = 0; s < P; ++s) {
    for (int m = 0; m < M; ++m) {
      program.rows[s][2 * m + s] = MakeAction(s, Kind::kForward, m);
      program.rows[s][2 * m + 2 * P - 1 - s] = MakeAction(s, Kind::kBackward, m);
    }
  }
  return program;
}

}  // namespace strata::schedule
