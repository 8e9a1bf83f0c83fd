// Cuts for ranks that have several stages each, which balance the work of ranks and not of single
// stages. The cuts by time (engine/plan/cut/cost_cut.h) make stages equal; with large layers that
// may be impossible, while the sums of several stages can still be equal.
#pragma once

#include <vector>

#include "engine/cost/layer_costs.h"

namespace strata {

struct RankCutOptions {
  std::vector<int> stage_ranks;       ///< rank of each stage; not empty
  std::vector<double> slowness = {};  ///< of each rank (Plan::slowness); empty: 1
  int micro_batches = 1;
  double owners = 1;         ///< replicas that share the optimizer's state
  double memory_weight = 0;  ///< the exponent of memory in a price
  int most = 1;              ///< the number of cuts to return
};

/// Gives a lower bound of the Price() (program_search.h) of a cut, for all schedules, in time
/// proportional to the stages. It assumes that a rank waits for its first input or clears and
/// updates its parameters meanwhile, does all of its work, and holds its parameters, gradients and
/// optimizer state. Prefix sums over the layers give each stage's work and memory.
class CutPricer {
 public:
  /// Both arguments must outlive this object. REQUIRES: the seconds of `costs` are set.
  CutPricer(const ModelCosts& costs, const RankCutOptions& options);

  /// `splits`: some schedule splits backwards. If none does, the last gradient of a rank has to
  /// travel back through all stages before it, too.
  double PriceOf(const std::vector<int>& bounds, bool splits = true);
  /// True if the layers between each bound of `a` and the same bound of `b` take next to no time.
  bool AreAlike(const std::vector<int>& a, const std::vector<int>& b) const;

 private:
  /// Prefix sums: the totals of all layers before one.
  struct Sums {
    double forward = 0, backward = 0, begin = 0, norm = 0, bytes = 0;
  };
  struct Rank {
    double slowness = 1, wait = -1, drain = 0, work = 0, begin = 0, norm = 0, bytes = 0;
  };

  Rank& FirstRank() { return ranks_[options_.stage_ranks[0]]; }

  const ModelCosts& costs_;
  const RankCutOptions& options_;
  std::vector<Rank> ranks_;
  std::vector<Sums> sums_;
  double skipped_ = 0;  ///< the input gradients that the first stage does not compute
};

/// A cut, and its CutPricer::PriceOf().
struct RankCut {
  std::vector<int> bounds;
  double price = 0;
};

/// The cuts with the least price, in ascending order; of equal prices the smaller bounds come
/// first. Of cuts that are alike (at most 0.5 % of the time lies between their bounds) only one is
/// returned. Empty if the list has more than
/// 300,000 cuts, too many to look at. REQUIRES: the seconds of `costs` are set.
std::vector<RankCut> CutsByRank(const ModelCosts& costs, const RankCutOptions& options);

}  // namespace strata
