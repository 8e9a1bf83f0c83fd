// RecomputeFront: the Pareto front of the ways to recompute layers of a stage.
//
// The layers of a stage form runs (stage_runs.h). A run that is kept holds its activations from
// forward to backward, for every live micro-batch. A recomputed run, a segment, holds only its
// input and costs its forward once more; while its backward runs, it needs the memory that it would
// have kept, one segment at a time. So each way to recompute has a price in seconds and several in
// memory (StageCost): what is kept, what R brings back, and the peaks of forward and backward. How
// many micro-batches are live at a time depends on the program and is not considered here.
//
// The front contains every way that no other way equals or beats in all of these prices. It is
// found by dynamic programming over the runs, from the last to the first. Adding a run in front
// changes all solutions for the rest of the stage in the same way, so a rest that is dominated
// never becomes better.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/cost/layer_costs.h"

namespace strata {

/// One way to recompute a stage.
struct Recomputation {
  std::vector<int> segments;  ///< per layer of the stage: 0, 1, ... for each segment, or -1
  StageCost cost;

  double seconds() const { return cost.recompute.seconds; }
};

/// The number of solutions for a rest of the stage above which they are thinned out. Stages of up
/// to 24 layers are exact; longer ones take no more than a second or two.
constexpr size_t FrontSize(int layers) { return layers <= 24 ? 4096 : 64; }

/// The front of layers `begin` to `end` as one stage, from the cheapest way (nothing is recomputed)
/// to the most expensive in seconds. It is exact if no rest has more than `most` solutions after
/// pruning or 16 times as many before. Else solutions evenly spaced in the order of seconds are
/// kept, and the smallest of each memory price. REQUIRES: begin < end; the seconds of `costs` are
/// set.
std::vector<Recomputation> RecomputeFront(const ModelCosts& costs, int begin, int end, size_t most);
inline std::vector<Recomputation> RecomputeFront(const ModelCosts& costs, int begin, int end) {
  return RecomputeFront(costs, begin, end, FrontSize(end - begin));
}

}  // namespace strata
