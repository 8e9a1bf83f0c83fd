// V-Half (Qi et al., arXiv:2405.15362): half the memory of 1F1B, by one building block.
#include "engine/schedule/generators/building_block.h"

namespace strata::schedule {

// P ranks with two stages each, M micro-batches; a column is a time step. P = 3, M = 4:
//
//   rank 0 | 0F0 0F1 .   .   .   5F0 5I0 0F2 5W0 5F1 5I1 5W1 0I0 0F3 0W0 5F2 5I2 5W2 0I1 0W1 .
//   rank 1 | .   1F0 .   .   4F0 1F1 .   4I0 4F1 4W0 1F2 1I0 4I1 1W0 4F2 4W1 1F3 1I1 4I2 1W1 4F3
//   rank 2 | .   .   2F0 3F0 .   .   2F1 3F1 3I0 2I0 3W0 2F2 2W0 3F2 3I1 2I1 3W1 2F3 2W1 3F3 3I2
//
//   rank 0 | 5F3 5I3 0I2 5W3 0W2 .   0I3 0W3
//   rank 1 | 4W2 1I2 4I3 1W2 4W3 1I3 1W3 .
//   rank 2 | 2I2 3W2 2W2 3I3 2I3 3W3 2W3 .
//
// A micro-batch takes 1 step from rank to rank where it goes up the ranks (first and third pass)
// and 2 steps where it comes down (second and fourth pass). Activations live for 6P steps on each
// rank, half as long as those of ZBV.
Program VHalf(const Sizes& sizes) {
  const bool is_even = sizes.ranks % 2 == 0;
  return Repeat({.name = "v_half", .hop = {1, 2, 1, 2}, .wait = {0, 0, is_even ? 3 : 0, 1}}, sizes);
}

}  // namespace strata::schedule
