// CostCut: cuts by what stages cost: time or memory, within a memory limit. Private to the package.
#pragma once

#include <vector>

#include "engine/cost/layer_costs.h"
#include "engine/cost/stage_memory.h"
#include "engine/job/job.h"

namespace strata::partition {

/// What a cut by costs looks at.
struct CostCutOptions {
  bool by_memory = false;  ///< else by time
  int64_t limit = 0;       ///< bytes that a stage may take; 0 = any
  int64_t micro_batches = 1;
  std::vector<StageSetting> settings;  ///< of every stage
};

/// The bounds of as many stages as there are settings: of all cuts within the limit those whose
/// slowest (or largest) stage is the least, in the sense of Balanced(). The time of a stage is that
/// of all its micro-batches, forward, gradients and what is recomputed, and of its optimizer step.
/// With recompute = "auto" a stage recomputes nothing, each layer by itself or all of them at once,
/// what is the least and within the limit; what it does in the end costs no more.
/// Throws ConfigError, with what the least cut needs, where no cut keeps the limit.
std::vector<int> CutByCosts(const Job& job, const ModelCosts& costs, const CostCutOptions& options);

}  // namespace strata::partition
