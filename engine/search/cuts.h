// Finds the cuts of a list of layers whose costliest stage costs least, within the memory of each
// stage's rank.
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
  double message = 0;  ///< seconds that each earlier stage adds to the head
  /// How many times as long each stage takes on its rank; empty: 1. The head takes as long as on
  /// the fastest rank.
  std::vector<double> slowness = {};
  bool splits = false;  ///< backwards are split into I and W: only forwards count for the head
  /// True if layers `begin` to `end` can be stage `stage`; an empty function allows everything.
  std::function<bool(int stage, int begin, int end)> fits = {};
};

struct FoundCut {
  std::vector<int> bounds;  ///< stages + 1
  double cost = 0;
};

/// The cut with the least cost; nothing if no cut fits. Among equally cheap cuts each bound, from
/// the first on, is as late as some best cut of the layers after it permits, so that the stages
/// behind the costliest one are balanced too.
///
/// The method: for a limit of the cost, each stage takes as many layers as the limit allows. That
/// finds a cut within the limit if there is one, because a stage that begins later costs less. The
/// limit is lowered to what the cut found really costs, and raised to the least cost at which some
/// stage would take one layer more, until both meet. Then the same is done for the layers behind
/// each bound. A limit takes stages * log(layers) look-ups, and few limits are needed.
///
/// The result is exact without `fits` and `slowness`. With them, a later stage may hold what an
/// earlier one cannot, so that a stage with fewer layers may be better: then short lists (at most
/// 2^20 stages * layers^2) are solved exactly by dynamic programming (plan/cut/cut_table.h), and of
/// longer ones a cut may be missed. REQUIRES: 1 <= stages <= layers.
std::optional<FoundCut> FindCut(const StageTable& table, const CutGoal& goal);

}  // namespace strata::search
