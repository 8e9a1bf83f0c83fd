// Cuts for ranks that have several stages each, which balance the work of ranks and not of single
// stages. The cuts by time (engine/plan/cut/cost_cut.h) make stages equal; with large layers that
// may be impossible, while the sums of several stages can still be equal.
#pragma once

#include <vector>

#include "engine/cost/layer_costs.h"

namespace strata {

struct RankCutOptions {
  std::vector<int> stage_ranks;  ///< rank of each stage; not empty
  int micro_batches = 1;
  double owners = 1;         ///< replicas that share the optimizer's state
  double memory_weight = 0;  ///< the exponent of memory in a price
  int most = 1;              ///< the number of cuts to return
};

/// A cut, and a lower bound of the Price() (program_search.h) of all schedules with it.
struct RankCut {
  std::vector<int> bounds;
  double price = 0;
};

/// The cuts with the least price, in ascending order; of equal prices the smaller bounds come
/// first. Of cuts that are alike (at most 0.5 % of the time lies between their bounds) only one is
/// returned. The price of a cut assumes that a rank waits for its first input, does all of its
/// work, and holds its parameters, gradients and optimizer state. Empty if the list has more than
/// 300,000 cuts, too many to look at. REQUIRES: the seconds of `costs` are set.
std::vector<RankCut> CutsByRank(const ModelCosts& costs, const RankCutOptions& options);

}  // namespace strata
