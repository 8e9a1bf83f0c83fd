#include "engine/planner/cuts.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace strata::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// By layer: seconds that a micro-batch takes on the layers before it, there and back.
std::vector<double> Heads(const StageTable& table, const CutGoal& goal) {
  std::vector<double> heads(static_cast<size_t>(table.layers()));
  if (!goal.head) return heads;
  for (int begin = 1; begin < table.layers(); ++begin) {
    const StageCost& before = table.Of(0, begin);
    heads[static_cast<size_t>(begin)] =
        before.forward.seconds + (goal.splits ? 0 : before.backward_seconds());
  }
  return heads;
}

}  // namespace

std::optional<BestCut> FindCut(const StageTable& table, const CutGoal& goal) {
  const int layers = table.layers(), stages = goal.stages;
  STRATA_CHECK(stages >= 1 && stages <= layers) << stages << " stages of " << layers << " layers";
  const std::vector<double> heads = Heads(table, goal);
  // costs[end]: the least cost of the first layers, up to `end`, on the stages so far.
  std::vector<double> costs(static_cast<size_t>(layers) + 1, kNever), next;
  costs[0] = 0;
  std::vector<std::vector<int>> begins(static_cast<size_t>(stages));
  int first = 0, furthest = 0;  // ends that the stages so far can have
  for (int stage = 0; stage < stages; ++stage) {
    next.assign(costs.size(), kNever);
    std::vector<int>& chosen = begins[static_cast<size_t>(stage)];
    chosen.assign(costs.size(), -1);
    const int last = layers - (stages - 1 - stage);
    const double wait = goal.head ? stage * goal.message : 0;
    const int from_first = first, from_last = furthest;
    first = last + 1;
    for (int end = from_first + 1; end <= last; ++end) {
      double& best = next[static_cast<size_t>(end)];
      const std::vector<double>& least = table.LeastSeconds(end);
      for (int begin = std::min(end - 1, from_last); begin >= from_first; --begin) {
        const auto from = static_cast<size_t>(begin);
        if (goal.micro_batches * least[from] > best) break;  // longer runs take longer
        if (costs[from] >= best) continue;
        const double own = heads[from] + wait + goal.micro_batches * table.Of(begin, end).seconds();
        const double cost = std::max(costs[from], own);
        if (cost >= best) continue;
        if (goal.fits && !goal.fits(stage, begin, end)) continue;
        best = cost;
        chosen[static_cast<size_t>(end)] = begin;
      }
      if (best == kNever) continue;
      first = std::min(first, end);
      furthest = end;
    }
    if (first > last) return std::nullopt;
    costs.swap(next);
  }
  if (costs.back() == kNever) return std::nullopt;
  BestCut best{std::vector<int>(static_cast<size_t>(stages) + 1, layers), costs.back()};
  for (auto stage = static_cast<size_t>(stages); stage-- > 0;) {
    best.bounds[stage] = begins[stage][static_cast<size_t>(best.bounds[stage + 1])];
  }
  return best;
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
    while (moved > 0 && bounds[static_cast<size_t>(moved)] == layers - (stages - moved)) --moved;
    if (moved <= 0) return;
    int place = ++bounds[static_cast<size_t>(moved)];
    for (int k = moved + 1; k < stages; ++k) bounds[static_cast<size_t>(k)] = ++place;
  }
}

}  // namespace strata::planner
