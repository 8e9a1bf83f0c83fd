// Breadth-first pipeline (Lamy-Poirier, arXiv:2211.05953), in which the gradients of a stage are
// complete early.
#include "engine/schedule/generators/idle_grid.h"

namespace strata::schedule {

// P ranks, v stages each, M micro-batches; a column is a time step. P = 3, v = 2, M = 3:
//
//   rank 0 | 0F0 0F1 0F2 3F0 3F1 3F2 .   .   .   .   3B0 3B1 3B2 0B0 0B1 0B2
//   rank 1 | .   1F0 1F1 1F2 4F0 4F1 4F2 .   .   4B0 4B1 4B2 1B0 1B1 1B2 .
//   rank 2 | .   .   2F0 2F1 2F2 5F0 5F1 5F2 5B0 5B1 5B2 2B0 2B1 2B2 .   .
//
// All micro-batches go through a rank's first stage, then through its second. On the way back the
// stages come in the opposite order, the micro-batches again in ascending order.
Program LoopedBfs(const Sizes& sizes) {
  const int P = sizes.ranks, v = sizes.stages_per_rank, M = sizes.micro_batches;
  Program program = IdleGrid("looped_bfs", LoopMap(P, v), P, M, 0);
  for (int r = 0; r < P; ++r) {
    for (int i = 0; i < v * M; ++i) {
      program.rows[r].push_back(MakeAction(i / M * P + r, Kind::kForward, i % M));
    }
    for (int i = 0; i < v * M; ++i) {
      program.rows[r].push_back(MakeAction((v - 1 - i / M) * P + r, Kind::kBackward, i % M));
    }
  }
  return WithIdleSteps(program);
}

}  // namespace strata::schedule
