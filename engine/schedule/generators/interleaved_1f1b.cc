// Interleaved 1F1B (Narayanan et al., arXiv:2104.04473, section 2.2.2), in the order of
// Megatron-LM.
#include "engine/schedule/generators/idle_grid.h"

namespace strata::schedule {

// P ranks, v stages each, M micro-batches; a column is a time step. P = 3, v = 2, M = 3:
//
//   rank 0 | 0F0 0F1 0F2 3F0 3F1 3F2 .   .   3B0 .   3B1 .   3B2 0B0 0B1 0B2
//   rank 1 | .   1F0 1F1 1F2 4F0 4F1 4F2 4B0 .   4B1 .   4B2 1B0 1B1 1B2 .
//   rank 2 | .   .   2F0 2F1 2F2 5F0 5B0 5F1 5B1 5F2 5B2 2B0 2B1 2B2 .   .
//
// A group has P micro-batches, or a few more if P does not divide M. Rank r runs all chunks of a
// group but the last ahead, and then 2(P-1-r) forwards more, because a backward returns to rank r
// that many forwards after its forward has left.
Program Interleaved1F1B(const Sizes& sizes) {
  return Alternate(sizes, {.name = "interleaved_1f1b", .lead = 2});
}

}  // namespace strata::schedule
