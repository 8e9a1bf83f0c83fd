// RecomputeChoice: implements recompute = "auto". It chooses which layers run forward again, so
// that every rank stays within the memory limit and the step is as short as possible. Nothing else
// chooses single layers: plans, plans with other cuts (rebalance.h), ways to fit (fit_ways.h) and
// the best plans of a search (job_search.h) all get them here.
//
// The program is given, and the peak of a rank depends only on the rank's own stages. So each rank
// is solved by itself: among the ways to recompute its stages (cost/recompute_front.h) it takes
// those which together take the least time and whose predicted peak (memory_forecast.h) is within
// the limit. The result is exact for one stage on a rank, as far as the front and the prediction
// are. With several stages it is exact if at most kMostTried combinations are cheaper than the one
// that fits; else it is one that fits and in which no single stage could be cheaper. Since no stage
// takes longer than necessary, neither does the step with this program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cost/recompute_front.h"
#include "engine/forecast/memory_forecast.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/schedule/program.h"

namespace strata {

inline constexpr int kMostTried = 20'000;

/// The choice for one program.
struct RecomputeChoice {
  std::vector<int> segments;     ///< LayerPlan::segment of every layer
  std::vector<StageCost> costs;  ///< the cost of every stage with these segments
  /// If nothing fits: the rank that is farthest above the limit, with the least memory that it
  /// needs, or the least that was found.
  RankMemory least = {};
  bool fits = true;
};

class RecomputeChooser {
 public:
  /// REQUIRES: plan.memory > 0, and the plan has costs. Both arguments must outlive this object.
  RecomputeChooser(const Job& job, const Plan& plan);

  /// Chooses for a program. `program`: compute only, without R, on the plan's stages.
  RecomputeChoice Choose(const schedule::Program& program) const;
  /// The costs that are used, seconds included: measured ones, or else those of a nominal device.
  const ModelCosts& costs() const { return costs_; }

 private:
  const Job& job_;
  const Plan& plan_;
  ModelCosts costs_;
  std::vector<std::vector<Recomputation>> fronts_;  ///< per stage
};

}  // namespace strata
