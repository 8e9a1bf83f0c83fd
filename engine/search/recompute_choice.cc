#include "engine/search/recompute_choice.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <set>
#include <utility>

#include "engine/plan/plan_costs.h"
#include "engine/schedule/lowering.h"

namespace strata {
namespace {

using schedule::Program;

/// For each stage of a rank, an index into the stage's front.
using FrontPlaces = std::vector<size_t>;

/// Chooses for the stages of one rank, which share its memory.
class RankChooser {
 public:
  RankChooser(const RankMemory& lasting, const RowPeaks& peaks, int64_t limit,
              std::vector<int> stages, const std::vector<std::vector<Recomputation>>& fronts,
              std::vector<StageCost>& costs)
      : lasting_(lasting),
        peaks_(peaks),
        limit_(limit),
        stages_(std::move(stages)),
        fronts_(fronts),
        costs_(costs) {}

  /// The cheapest ways that fit. Empty if none fit; then least() is the memory that they would
  /// need.
  FrontPlaces Choose() {
    const FrontPlaces cheapest = Cheapest();
    if (!cheapest.empty()) return cheapest;
    const FrontPlaces smallest = Smallest();
    least_ = MemoryOf(smallest);
    return least_.total() <= limit_ ? Cheaper(smallest) : FrontPlaces();
  }

  const RankMemory& least() const { return least_; }
  const std::vector<int>& stages() const { return stages_; }

 private:
  const std::vector<Recomputation>& front(size_t k) const { return fronts_[stages_[k]]; }

  double SecondsOf(const FrontPlaces& ways) const {
    double seconds = 0;
    for (size_t k = 0; k < ways.size(); ++k) seconds += front(k)[ways[k]].seconds();
    return seconds;
  }

  RankMemory MemoryOf(const FrontPlaces& ways) {
    for (size_t k = 0; k < ways.size(); ++k) {
      costs_[stages_[k]] = front(k)[ways[k]].cost;
    }
    return peaks_.Of(lasting_, costs_);
  }
  bool Fits(const FrontPlaces& ways) { return MemoryOf(ways).total() <= limit_; }

  /// Tries combinations in ascending order of their seconds (uniform-cost search) until one fits,
  /// or until kMostTried did not fit.
  FrontPlaces Cheapest() {
    using Entry = std::pair<double, FrontPlaces>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    std::set<FrontPlaces> seen;
    const auto add = [&](FrontPlaces ways) {
      if (seen.insert(ways).second) open.emplace(SecondsOf(ways), std::move(ways));
    };
    add(FrontPlaces(stages_.size(), 0));
    for (int tried = 0; !open.empty() && tried < kMostTried; ++tried) {
      const FrontPlaces ways = open.top().second;
      open.pop();
      if (Fits(ways)) return ways;
      for (size_t k = 0; k < ways.size(); ++k) {
        FrontPlaces next = ways;
        if (++next[k] < front(k).size()) add(std::move(next));
      }
    }
    return {};
  }

  /// The ways with the least memory found by improving one stage after the other until none gains.
  /// This is the minimum if the rank has one stage.
  FrontPlaces Smallest() {
    FrontPlaces ways(stages_.size());
    for (size_t k = 0; k < ways.size(); ++k) {
      const auto least = std::ranges::min_element(
          front(k), {}, [](const Recomputation& way) { return way.cost.kept_bytes; });
      ways[k] = static_cast<size_t>(least - front(k).begin());
    }
    int64_t now = MemoryOf(ways).total();
    for (bool gains = true; gains;) {
      gains = false;
      for (size_t k = 0; k < ways.size(); ++k) {
        FrontPlaces tried = ways;
        for (tried[k] = 0; tried[k] < front(k).size(); ++tried[k]) {
          const int64_t total = MemoryOf(tried).total();
          if (total >= now) continue;
          now = total;
          ways = tried;
          gains = true;
        }
      }
    }
    return ways;
  }

  /// Makes each stage as cheap as the others allow. REQUIRES: `ways` fit.
  FrontPlaces Cheaper(FrontPlaces ways) {
    for (size_t k = 0; k < ways.size(); ++k) {
      FrontPlaces tried = ways;
      for (tried[k] = 0; tried[k] < ways[k]; ++tried[k]) {
        if (!Fits(tried)) continue;
        ways = tried;
        break;
      }
    }
    return ways;
  }

  const RankMemory& lasting_;
  const RowPeaks& peaks_;
  const int64_t limit_;
  const std::vector<int> stages_;
  const std::vector<std::vector<Recomputation>>& fronts_;
  std::vector<StageCost>& costs_;
  RankMemory least_;
};

ModelCosts WithSeconds(const Plan& plan) {
  ModelCosts costs = *plan.costs;
  if (!costs.has_seconds()) SetSeconds(costs, NominalDevice(plan.device));
  return costs;
}

/// The program with an R for every stage; an R of a stage that recomputes nothing takes neither
/// time nor memory.
Program WithR(const Program& program) {
  std::vector<int> all(static_cast<size_t>(program.stages()));
  std::iota(all.begin(), all.end(), 0);
  return schedule::AddRecomputation(program, all);
}

}  // namespace

RecomputeChooser::RecomputeChooser(const Job& job, const Plan& plan)
    : job_(job), plan_(plan), costs_(WithSeconds(plan)) {
  for (const StagePlan& stage : plan.stages) {
    fronts_.push_back(RecomputeFront(costs_, stage.begin, stage.end));
  }
}

RecomputeChoice RecomputeChooser::Choose(const Program& program) const {
  RecomputeChoice choice;
  choice.segments.assign(plan_.layers.size(), -1);
  for (const std::vector<Recomputation>& front : fronts_) choice.costs.push_back(front[0].cost);
  const Program with_r = WithR(program);
  const RowPeaks peaks(with_r);
  const std::vector<RankMemory> lasting = LastingMemory(job_, plan_, costs_, choice.costs);
  int next = 0;
  int64_t most_over = 0;  // bytes by which choice.least is above its limit
  for (int rank = 0; rank < program.ranks(); ++rank) {
    const std::vector<int> stages = schedule::StagesOfRank(program, rank);
    RankChooser chooser(lasting[static_cast<size_t>(rank)], peaks, plan_.MemoryOf(rank), stages,
                        fronts_, choice.costs);
    const FrontPlaces ways = chooser.Choose();
    if (ways.empty()) {
      const int64_t over = chooser.least().total() - plan_.MemoryOf(rank);
      if (choice.fits || over > most_over) {
        choice.least = chooser.least();
        most_over = over;
      }
      choice.fits = false;
      continue;
    }
    for (size_t k = 0; k < stages.size(); ++k) {
      const auto s = static_cast<size_t>(stages[k]);
      const Recomputation& way = fronts_[s][ways[k]];
      choice.costs[s] = way.cost;
      int used = 0;
      for (size_t i = 0; i < way.segments.size(); ++i) {
        if (way.segments[i] < 0) continue;
        choice.segments[static_cast<size_t>(plan_.stages[s].begin) + i] = next + way.segments[i];
        used = way.segments[i] + 1;
      }
      next += used;
    }
  }
  return choice;
}

}  // namespace strata
