#include "engine/search/cuts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/base/check.h"
#include "engine/plan/cut/cut_table.h"

namespace strata::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double CutCost(const StageTable& table, const CutGoal& goal, int stage, int begin, int end) {
  const double pace = goal.slowness.empty() ? 1 : goal.slowness[stage];
  const double work = pace * goal.micro_batches * table.Of(begin, end).seconds();
  if (!goal.head || begin == 0) return work;
  const StageCost& before = table.Of(0, begin);
  const double fastest = goal.slowness.empty() ? 1 : std::ranges::min(goal.slowness);
  return fastest * (before.forward.seconds + (goal.splits ? 0 : before.backward_seconds())) +
         stage * goal.message + work;
}

/// The problem for CutTable: the largest cost over the stages.
class Costliest {
 public:
  using Cost = double;
  static constexpr bool kIsMonge = false;

  Costliest(const StageTable& table, const CutGoal& goal)
      : table_(table), goal_(goal), windows_(partition::AllWindows(table.layers(), goal.stages)) {}

  const std::vector<partition::Window>& windows() const { return windows_; }
  static double Join(double stage, double rest) { return std::max(stage, rest); }
  std::optional<double> Of(int stage, int begin, int end) const {
    if (goal_.fits && !goal_.fits(stage, begin, end)) return std::nullopt;
    return CutCost(table_, goal_, stage, begin, end);
  }

 private:
  const StageTable& table_;
  const CutGoal& goal_;
  const std::vector<partition::Window> windows_;
};

/// Finds the cut with the least cost by limits of the cost, as cuts.h describes.
class Cutter {
 public:
  Cutter(const StageTable& table, const CutGoal& goal)
      : table_(table), goal_(goal), bounds_(static_cast<size_t>(goal.stages) + 1) {}

  std::optional<FoundCut> Find() {
    if (!Fill(0, kNever)) return std::nullopt;
    const double cost = Lower(0);
    for (int stage = 1; stage < goal_.stages; ++stage) Lower(stage);
    return FoundCut{bounds_, cost};
  }

 private:
  /// Makes bounds_ the best cut of the layers behind the bound before `stage`, and returns its
  /// cost. REQUIRES: bounds_ is a cut that fits.
  double Lower(int stage) {
    double low = 0, high = 0;  // no cut costs less than `low`, and bounds_ costs `high`
    for (int s = stage; s < goal_.stages; ++s) {
      high = std::max(high, CostOf(s, bounds_[s], bounds_[s + 1]));
    }
    double limit = std::nextafter(high, 0);  // behind other bounds it is often the best already
    while (low < high) {
      const std::vector<int> known = bounds_;
      if (Fill(stage, limit)) {
        high = cost_;
      } else {
        bounds_ = known;
        low = next_;
      }
      const double middle = low + (high - low) / 2;
      limit = middle < high ? middle : low;
    }
    return high;
  }

  /// Sets the bounds behind `stage` as late as the limit of the cost allows, and cost_ to the cost.
  /// False if no cut keeps to the limit; none keeps to a limit below next_ then.
  bool Fill(int stage, double limit) {
    cost_ = 0;
    next_ = kNever;
    for (int s = stage; s < goal_.stages; ++s) {
      const int begin = bounds_[s], last = table_.layers() - (goal_.stages - s - 1);
      const int end = FurthestEnd(s, begin, last, limit);
      if (end < last && Fits(s, begin, end + 1)) {
        next_ = std::min(next_, CostOf(s, begin, end + 1));
      }
      if (end == begin) return false;
      bounds_[s + 1] = end;
      cost_ = std::max(cost_, CostOf(s, begin, end));
    }
    return bounds_.back() == table_.layers();
  }

  /// The furthest end up to `last` that the limit allows; `begin` if there is none. It is looked
  /// for from the mean length on.
  int FurthestEnd(int s, int begin, int last, double limit) const {
    int good = begin, bad = last + 1;
    int tried = begin + std::max(1, (table_.layers() - begin) / (goal_.stages - s)), step = 1;
    bool is_bracketed = false;
    while (good + 1 < bad) {
      tried = std::clamp(tried, good + 1, bad - 1);
      if (Fits(s, begin, tried) && CostOf(s, begin, tried) <= limit) {
        good = tried;
      } else {
        bad = tried;
        is_bracketed = true;
      }
      tried = is_bracketed ? good + (bad - good) / 2 : good + step;
      step *= 2;
    }
    return good;
  }

  bool Fits(int stage, int begin, int end) const {
    return !goal_.fits || goal_.fits(stage, begin, end);
  }

  double CostOf(int stage, int begin, int end) const {
    return CutCost(table_, goal_, stage, begin, end);
  }

  const StageTable& table_;
  const CutGoal& goal_;
  std::vector<int> bounds_;
  double cost_ = 0, next_ = 0;
};

}  // namespace

std::optional<FoundCut> FindCut(const StageTable& table, const CutGoal& goal) {
  STRATA_CHECK(goal.stages >= 1 && goal.stages <= table.layers())
      << goal.stages << " stages of " << table.layers() << " layers";
  constexpr double kMostSteps = 1 << 20;
  const double layers = table.layers();
  const bool is_simple = !goal.fits && goal.slowness.empty();
  if (is_simple || goal.stages * layers * layers > kMostSteps) return Cutter(table, goal).Find();
  const Costliest problem(table, goal);
  partition::CutTable cuts(problem);
  std::vector<int> bounds = cuts.Solve();
  if (bounds.empty()) return std::nullopt;
  return FoundCut{std::move(bounds), cuts.cost()};
}

}  // namespace strata::search
