// List schedules: each rank runs what it can, by rules. Private to the package.
#pragma once

#include <vector>

#include "engine/schedule/generators/generators.h"
#include "engine/schedule/program/program.h"
#include "engine/schedule/simulate/simulator.h"

namespace strata::schedule {

/// When a rank is free it runs, of what can run: an I, else an F, else the oldest W that it owes.
struct ListRules {
  bool deepest_forward = true;   ///< of several F: the highest stage's, else the lowest's
  bool deepest_backward = true;  ///< of several I
  /// A rank that could only run a W waits instead when an F or I can run within this share of the
  /// W's time.
  double patience = 0;
  /// The most pairs of stage and micro-batch alive on a rank. REQUIRES: at least its stages.
  int memory = 0;
};

/// A program on this map under these rules, each kind of each stage in ascending order of
/// micro-batches. A rank starts a micro-batch only where there is memory for it on all of the
/// rank's stages, so that it never gets stuck.
Program ListSchedule(const std::vector<int>& stage_ranks, int ranks, int micro_batches,
                     const Costs& costs, const ListRules& rules);

}  // namespace strata::schedule
