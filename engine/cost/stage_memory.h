// StageMemory: what a stage's tensors take at most, before there is a program to look at: for cuts
// and recomputation within a memory limit. engine/forecast/memory_forecast.h predicts whole
// programs.
#pragma once

#include <cstdint>

#include "engine/cost/layer_costs.h"

namespace strata {

/// Where a stage stands.
struct StageSetting {
  int live = 1;           ///< micro-batches that have gone forward and not yet back, at most
  int slots = 2;          ///< receives posted ahead (schedule/lifetimes.h)
  bool receives = false;  ///< its input comes from another rank
  bool sends = false;     ///< its output goes to another rank
  int micro_batches = 1;
  double owners = 1;  ///< replicas that share the optimizer's state
};

/// An upper bound, which a stage that is alone on its rank comes close to.
int64_t StageMemory(const ModelCosts& costs, const StageCost& stage, const StageSetting& setting);

}  // namespace strata
