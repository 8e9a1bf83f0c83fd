// Cuts for ranks that have several stages each: what a rank does is to be balanced, whatever its
// stages are. The cuts by time (engine/plan/cut/cost_cut.h) make stages equal, which large layers
// may not allow where sums of several stages are equal all the same.
#pragma once

#include <vector>

#include "engine/cost/layer_costs.h"

namespace strata {

struct RankCutOptions {
  std::vector<int> stage_ranks;  ///< of each stage; not empty
  int micro_batches = 1;
  double owners = 1;         ///< replicas that share the optimizer's state
  double memory_weight = 0;  ///< how much less memory is worth: the exponent of a price
  int most = 1;              ///< cuts that are returned
};

/// A cut, and the Price() (program_search.h) that no schedule of it can be below.
struct RankCut {
  std::vector<int> bounds;
  double price = 0;
};

/// Those of all cuts with the least price, ascending; of equals the earlier bounds, and one of
/// those that are alike, as 0.5 % of the time lies between their bounds. A rank waits for its first
/// input, does all of its work, and holds its parameters, gradients and the optimizer's state. None
/// where a list has too many cuts to look at all of them (300,000). REQUIRES: the seconds of
/// `costs` are set.
std::vector<RankCut> CutsByRank(const ModelCosts& costs, const RankCutOptions& options);

}  // namespace strata
