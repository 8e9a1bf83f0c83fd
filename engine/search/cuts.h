// Finds the cuts of a list of layers with the shortest step, within the memory of each stage's
// rank.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "engine/search/cluster/stage_table.h"

namespace strata::search {

/// Defines the cost of a cut: the largest of its stages' costs,
///   head * (seconds of a first micro-batch to the stage, and of a last one back from it)
///   + micro_batches * (the stage's seconds).
struct CutGoal {
  int stages = 1;
  /// Micro-batches of a step. With `head` the cost is a lower bound of the step, because a stage
  /// waits for its first input, and its last gradient has to travel back. Without `head` use 1:
  /// only the slowest stage counts.
  double micro_batches = 1;
  bool head = false;
  double message = 0;   ///< seconds that each earlier stage adds to the head
  bool splits = false;  ///< backwards are split into I and W: only forwards count for the head
  /// True if layers `begin` to `end` can be stage `stage`; an empty function allows everything.
  std::function<bool(int stage, int begin, int end)> fits = {};
};

struct FoundCut {
  std::vector<int> bounds;  ///< stages + 1
  double cost = 0;
};

/// The cut with the least cost, exactly; nothing if no cut fits. Of cuts with equal cost, the one
/// that CutTable (plan/cut/cut_table.h) chooses. Takes at most stages * layers^2 / 2 steps.
/// REQUIRES: 1 <= stages <= layers.
std::optional<FoundCut> FindCut(const StageTable& table, const CutGoal& goal);

}  // namespace strata::search
