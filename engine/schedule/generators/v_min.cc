// V-Min (Qi et al., arXiv:2405.15362): the least memory of a V, by one building block.
#include "engine/schedule/generators/building_block.h"

namespace strata::schedule {

// P ranks with two stages each, M micro-batches; a column is a time step. P = 3, M = 4:
//
//   rank 0 | 0F0 .   .   .   .   5F0 0F1 5I0 5W0 .   .   5F1 0F2 0I0 5I1 0W0 5W1 5F2 0F3 0I1 5I2
//   rank 1 | .   1F0 .   .   4F0 .   .   1F1 4I0 4W0 4F1 .   1I0 1F2 1W0 4I1 4F2 4W1 1I1 1F3 1W1
//   rank 2 | .   .   2F0 3F0 .   .   .   .   2F1 3F1 3I0 2I0 3W0 2W0 2F2 3F2 3I1 2I1 3W1 2W1 2F3
//
//   rank 0 | 0W1 5W2 5F3 .   0I2 5I3 0W2 5W3 .   .   0I3 0W3
//   rank 1 | 4I2 4F3 4W2 1I2 1W2 .   4I3 4W3 .   1I3 1W3 .
//   rank 2 | 3F3 3I2 2I2 3W2 2W2 .   .   3I3 2I3 3W3 2W3 .
//
// A micro-batch takes 1 step from rank to rank on all its passes. Activations live for 4P steps on
// each rank, a third as long as those of ZBV.
Program VMin(const Sizes& sizes) {
  const int wait = sizes.ranks % 3 == 0 ? 2 : 0;
  return Repeat({.name = "v_min", .wait = {0, 0, wait, 0}}, sizes);
}

}  // namespace strata::schedule
