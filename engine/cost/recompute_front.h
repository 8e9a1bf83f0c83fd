// RecomputeFront: the ways to compute layers of a stage again that are worth choosing from.
//
// The model. A stage's layers are runs (stage_runs.h): a run that is kept holds its activations
// from forward to backward, for every micro-batch that is alive; a segment, a run that is
// recomputed, holds its input alone, costs its forward once more, and takes what it would have kept
// while its own backward runs, one segment at a time. So a way to recompute has a price in seconds
// and several prices in memory (StageCost): what is kept, what R brings back, and the highest
// moments of forward and backward. How many micro-batches are alive, and when, is the program's
// affair.
//
// The front has every way of which no other is at least as good in all of these. It is found by
// dynamic programming over the runs, from the last to the first: what is added before a rest
// changes all rests in the same way, so that a rest which is worse in everything never becomes
// better.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/cost/layer_costs.h"

namespace strata {

/// A way to recompute a stage.
struct Recomputation {
  std::vector<int> segments;  ///< of the stage's layers: 0, 1, ... for each segment, or -1
  StageCost cost;

  double seconds() const { return cost.recompute.seconds; }
};

/// How many ways a rest of a stage may have before they are thinned out: so many that stages of 24
/// layers and less are exact, and so few that longer ones take no more than a second or two.
constexpr size_t FrontSize(int layers) { return layers <= 24 ? 4096 : 64; }

/// Layers `begin` to `end` as one stage: the ways that its layers allow, from the cheapest (nothing
/// is recomputed) to the dearest. Exact where no rest has more than `most` ways, or more than 16
/// times as many to compare; else those are left which are evenly far apart in seconds, and the
/// least of each memory. REQUIRES: begin < end; the seconds of `costs` are set.
std::vector<Recomputation> RecomputeFront(const ModelCosts& costs, int begin, int end, size_t most);
inline std::vector<Recomputation> RecomputeFront(const ModelCosts& costs, int begin, int end) {
  return RecomputeFront(costs, begin, end, FrontSize(end - begin));
}

}  // namespace strata
