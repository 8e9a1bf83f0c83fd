#include "engine/search/cuts.h"

#include <algorithm>
#include <utility>

#include "engine/plan/cut/cut_table.h"

namespace strata::search {
namespace {

/// Per layer: the seconds of a micro-batch on the layers before it, forward and back.
std::vector<double> Heads(const StageTable& table, const CutGoal& goal) {
  std::vector<double> heads(static_cast<size_t>(table.layers()));
  if (!goal.head) return heads;
  for (int begin = 1; begin < table.layers(); ++begin) {
    const StageCost& before = table.Of(0, begin);
    heads[begin] = before.forward.seconds + (goal.splits ? 0 : before.backward_seconds());
  }
  return heads;
}

/// The cut problem for CutTable, which minimises the largest cost over the stages by dynamic
/// programming: for each number of stages and each end it keeps the best last bound.
class Costliest {
 public:
  using Cost = double;
  static constexpr bool kIsMonge = false;

  Costliest(const StageTable& table, const CutGoal& goal)
      : table_(table),
        goal_(goal),
        heads_(Heads(table, goal)),
        windows_(partition::AllWindows(table.layers(), goal.stages)) {}

  const std::vector<partition::Window>& windows() const { return windows_; }
  static double Join(double stage, double rest) { return std::max(stage, rest); }
  std::optional<double> Of(int stage, int begin, int end) const {
    if (goal_.fits && !goal_.fits(stage, begin, end)) return std::nullopt;
    const double wait = goal_.head ? stage * goal_.message : 0;
    return heads_[begin] + wait + goal_.micro_batches * table_.Of(begin, end).seconds();
  }
  bool AreAbove(int begin, int end, double least) const {
    return goal_.micro_batches * table_.LeastSeconds(begin, end) > least;
  }

 private:
  const StageTable& table_;
  const CutGoal& goal_;
  const std::vector<double> heads_;
  const std::vector<partition::Window> windows_;
};

}  // namespace

std::optional<FoundCut> FindCut(const StageTable& table, const CutGoal& goal) {
  STRATA_CHECK(goal.stages >= 1 && goal.stages <= table.layers())
      << goal.stages << " stages of " << table.layers() << " layers";
  const Costliest problem(table, goal);
  partition::CutTable cuts(problem);
  std::vector<int> bounds = cuts.Solve();
  if (bounds.empty()) return std::nullopt;
  return FoundCut{std::move(bounds), cuts.cost()};
}

}  // namespace strata::search
