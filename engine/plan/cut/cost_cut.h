// CostCut: cuts by the time or memory that stages take, within a memory limit. Private to the
// package.
#pragma once

#include <functional>
#include <vector>

#include "engine/cost/layer_costs.h"
#include "engine/cost/stage_memory.h"
#include "engine/job/job.h"

namespace strata::partition {

/// The goal and the limits of a cut by costs.
struct CostCutOptions {
  bool by_memory =
      false;  ///< true: minimise the memory of the largest stage; false: the time of the slowest
  std::vector<int64_t> limits = {};  ///< bytes that each stage may take; empty = any number
  /// How many times as long the layers take on each stage's rank as the costs say; empty = 1.
  std::vector<double> slowness = {};
  int64_t micro_batches = 1;
  std::vector<StageSetting> settings;  ///< one for each stage
  std::vector<int> stage_ranks = {};   ///< for errors, if `limits` differ
  /// True if the job's recompute function chooses the layer at `place` where it is on `stage`. Set
  /// if and only if the job has such a function.
  std::function<bool(int place, int stage)> recomputes = {};
};

/// Returns the bounds of as many stages as there are settings: of all cuts within the limits the
/// one whose slowest (or largest) stage is the least, in the sense of Balanced(). The time of a
/// stage is that of all its micro-batches (forward, gradients, and what is recomputed) and of its
/// optimizer step, on its rank. Where limits differ, a stage counts as larger by what its limit is
/// below the largest one. With recompute = "auto" each stage is counted with the cheapest way
/// within the limit: it recomputes nothing, each layer by itself, or all its layers at once. What
/// the plan recomputes in the end costs no more. Throws ConfigError if no cut keeps to the limit,
/// and tells what the smallest cut needs.
std::vector<int> CutByCosts(const Job& job, const ModelCosts& costs, const CostCutOptions& options);

}  // namespace strata::partition
