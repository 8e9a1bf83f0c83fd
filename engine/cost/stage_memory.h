// StageMemory: an upper bound of the bytes of a stage's tensors, for cuts and recomputation within
// a memory limit, before there is a program. engine/forecast/memory_forecast.h predicts the memory
// of whole programs.
#pragma once

#include <cstdint>

#include "engine/cost/layer_costs.h"

namespace strata {

/// The position of a stage in the pipeline, as far as its memory depends on it.
struct StageSetting {
  int live = 1;           ///< the most micro-batches between their forward and their backward
  int slots = 2;          ///< receives posted ahead (schedule/lifetimes.h)
  bool receives = false;  ///< true if the input comes from another rank
  bool sends = false;     ///< true if the output goes to another rank
  int micro_batches = 1;
  double owners = 1;  ///< replicas that share the optimizer's state
};

/// An upper bound in bytes; it is close for a stage that is alone on its rank.
int64_t StageMemory(const ModelCosts& costs, const StageCost& stage, const StageSetting& setting);

}  // namespace strata
