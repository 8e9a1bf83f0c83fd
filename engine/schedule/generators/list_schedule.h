// List schedules: simulates the ranks, and lets each free rank choose by rules among the actions
// that can run. Private to the package.
#pragma once

#include <limits>

#include "engine/schedule/program.h"
#include "engine/schedule/simulator.h"

namespace strata::schedule {

/// The rules by which a free rank chooses: an I that can run, else an F, else the oldest W that is
/// due.
struct ListRules {
  bool deepest_forward =
      true;  ///< among several F it takes that of the highest stage, else of the lowest
  bool deepest_backward = true;  ///< the same among several I
  /// If a rank could only run a W, but an F or I can run within this share of the W's time, the
  /// rank waits for that F or I instead.
  double patience = 0;
  /// The largest number of pairs of stage and micro-batch that may be alive on a rank. REQUIRES: at
  /// least the number of its stages.
  int memory = std::numeric_limits<int>::max();
};

/// Fills the rows of `program` with a list schedule. The actions of one kind and stage run in
/// ascending order of micro-batches. An evaluation program gets forwards only.
///
/// If the rows are not empty, they give the order in which each rank must run its F and I; their W
/// are ignored. Without such an order a rank starts a micro-batch on its first stage only if there
/// is memory for it on all its stages, so that it never gets stuck. REQUIRES: the given order can
/// run within the memory.
Program ListSchedule(Program program, const Costs& costs, const ListRules& rules);

}  // namespace strata::schedule
