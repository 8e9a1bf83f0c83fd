// RecomputeChoice: recompute = "auto". Which layers run forward again, so that every rank keeps to
// the memory limit and the step takes as little time as can be.
//
// Of a given program, whose peak on a rank depends on that rank's stages alone: each rank takes, of
// the ways of its stages to recompute (cost/recompute_front.h), those which together take the
// least time and whose predicted peak (memory_forecast.h) is within the limit. Exact for one stage
// on a rank, as far as the front and the prediction are; with several, as long as no more than
// kMostTried combinations are cheaper than the one that fits, else one that fits and of which no
// stage alone could be cheaper. No stage takes longer than it must, so no step with this program
// does.
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

/// For one program.
struct RecomputeChoice {
  std::vector<int> segments;     ///< of every layer, as LayerPlan::segment
  std::vector<StageCost> costs;  ///< of every stage with them
  /// Where no way keeps to the limit: the rank that is farthest from it, with the least that it
  /// would need, or the least that was found.
  RankMemory least = {};
  bool fits = true;
};

class RecomputeChooser {
 public:
  /// REQUIRES: plan.memory > 0, with the plan's costs. Both must outlive it.
  RecomputeChooser(const Job& job, const Plan& plan);

  /// `program`: compute only, without R, on the plan's stages.
  RecomputeChoice Choose(const schedule::Program& program) const;
  /// The costs that it goes by, seconds included: measured, else those of a nominal device.
  const ModelCosts& costs() const { return costs_; }

 private:
  const Job& job_;
  const Plan& plan_;
  ModelCosts costs_;
  std::vector<std::vector<Recomputation>> fronts_;  ///< of every stage
};

}  // namespace strata
