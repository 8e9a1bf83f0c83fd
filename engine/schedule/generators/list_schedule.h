// List schedules: each rank runs what it can, by rules. Private to the package.
#pragma once

#include <limits>

#include "engine/schedule/program.h"
#include "engine/schedule/simulator.h"

namespace strata::schedule {

/// When a rank is free it runs, of what can run: an I, else an F, else the oldest W that it owes.
struct ListRules {
  bool deepest_forward = true;   ///< of several F: the highest stage's, else the lowest's
  bool deepest_backward = true;  ///< of several I
  /// A rank that could only run a W waits instead when an F or I can run within this share of the
  /// W's time.
  double patience = 0;
  /// The most pairs of stage and micro-batch alive on a rank. REQUIRES: at least its stages.
  int memory = std::numeric_limits<int>::max();
};

/// `program` with the actions of a list schedule in its rows, each kind of each stage in ascending
/// order of micro-batches. An evaluation program has forwards only.
///
/// Rows that are there already say in which order a rank runs its F and I; their W mean nothing.
/// Without such an order a rank starts a micro-batch where there is memory for it on all of its
/// stages, so that it never gets stuck. REQUIRES: the order can be run with the memory.
Program ListSchedule(Program program, const Costs& costs, const ListRules& rules);

}  // namespace strata::schedule
