#include "engine/predict/search/cuts.h"

#include <algorithm>
#include <numeric>

namespace strata::predict {
namespace {

/// By layer: seconds that a micro-batch takes on the layers before it, there and back.
std::vector<double> Heads(const StageTable& table, const CutGoal& goal) {
  std::vector<double> heads(static_cast<size_t>(table.layers()));
  if (!goal.head) return heads;
  for (int begin = 1; begin < table.layers(); ++begin) {
    const StageCost& before = table.Of(0, begin);
    heads[begin] = before.forward.seconds + (goal.splits ? 0 : before.backward_seconds());
  }
  return heads;
}

}  // namespace

std::optional<partition::Bottleneck> FindCut(const StageTable& table, const CutGoal& goal) {
  const int layers = table.layers(), stages = goal.stages;
  STRATA_CHECK(stages >= 1 && stages <= layers) << stages << " stages of " << layers << " layers";
  const std::vector<double> heads = Heads(table, goal);
  const auto cost = [&](int stage, int begin, int end, double below) {
    const double wait = goal.head ? stage * goal.message : 0;
    const double own = heads[begin] + wait + goal.micro_batches * table.Of(begin, end).seconds();
    const bool is_in_vain = own < below && goal.fits && !goal.fits(stage, begin, end);
    return is_in_vain ? partition::kNever : own;
  };
  const auto at_least = [&](int begin, int end) {
    return goal.micro_batches * table.LeastSeconds(end)[begin];
  };
  return partition::LeastBottleneck(layers, stages, cost, at_least);
}

double CountCuts(int layers, int stages, double most) {
  const int chosen = std::min(stages - 1, layers - stages);
  double count = 1;
  for (int k = 1; k <= chosen && count < most; ++k) count = count * (layers - k) / k;
  return std::min(count, most);
}

void ForEachCut(int layers, int stages, const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> bounds(static_cast<size_t>(stages) + 1);
  std::iota(bounds.begin(), bounds.end(), 0);
  bounds.back() = layers;
  while (true) {
    visit(bounds);
    // The last bound that can move on, and those behind it as early as they can be.
    int moved = stages - 1;
    while (moved > 0 && bounds[moved] == layers - (stages - moved)) --moved;
    if (moved <= 0) return;
    int place = ++bounds[moved];
    for (int k = moved + 1; k < stages; ++k) bounds[k] = ++place;
  }
}

}  // namespace strata::predict
