// Cuts: where a list of layers is cut for the shortest step, within what each stage's rank can
// hold.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "engine/search/cluster/stage_table.h"

namespace strata::search {

/// What makes one cut better than another: the largest of its stages' costs,
///   head * (what a first micro-batch takes to reach the stage, and a last one back from it)
///   + micro_batches * (the stage's seconds).
struct CutGoal {
  int stages = 1;
  /// Of a step. With `head`: the step takes at least the cost, as a stage waits for its first input
  /// and its last gradient has its way to go. Without: 1, the slowest stage counts alone.
  double micro_batches = 1;
  bool head = false;
  double message = 0;   ///< seconds that each stage before adds to the head
  bool splits = false;  ///< backwards in I and W: only forwards count for the head
  /// Whether these layers can be stage `stage`; empty: always.
  std::function<bool(int stage, int begin, int end)> fits = {};
};

struct FoundCut {
  std::vector<int> bounds;  ///< stages + 1
  double cost = 0;
};

/// The cut with the least cost, exactly, whatever the loads are; nothing when none fits. Of equals
/// the one that CutTable (plan/cut/cut_table.h) takes. Takes at most stages * layers^2 / 2 steps.
/// REQUIRES: 1 <= stages <= layers.
std::optional<FoundCut> FindCut(const StageTable& table, const CutGoal& goal);

}  // namespace strata::search
