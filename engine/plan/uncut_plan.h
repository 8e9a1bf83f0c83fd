// UncutPlan: a job placed as far as its cuts do not matter, which can be cut in many ways.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/plan/plan.h"

namespace strata {

/// The shapes of a micro-batch through the list; both empty where nobody knows them.
struct MicroBatchShapes {
  TensorSpecs input;
  std::vector<TensorSpecs> outputs;
  std::optional<FirstBatch> first = {};  ///< of a training with a data function
};

class UncutPlan {
 public:
  /// Throws as MakePlan() for what does not depend on cuts.
  UncutPlan(const Job& job, const PlanOptions& options, Script* script);

  /// The same of a plan, to be cut anew: nothing is measured and no data is asked.
  UncutPlan(const Job& job, const Plan& plan, Script* script);

  /// The plan without its cuts and what follows from them.
  const Plan& plan() const { return uncut_; }

  /// Cuts the list into a stage for each entry of `stage_ranks`. `job` may differ from the
  /// plan's own in what says where to cut, in recompute and the schedule. `settings` as
  /// PlanOptions::settings. Throws as MakePlan().
  Plan Cut(const Job& job, const std::vector<int>& stage_ranks,
           const std::vector<StageSetting>& settings) const;

 private:
  Plan uncut_;
  MicroBatchShapes shapes_;
  Script* script_;
};

/// max_norm writes to the parameter in a forward. Throws ConfigError where others have a copy of
/// it, or the forward runs again, so that the copies or the passes would differ. `again`: stages
/// that the program runs forward again as a whole.
void CheckMaxNorm(const Job& job, const Plan& plan, std::span<const int> again);

/// Where the plan goes by what all earlier runs took (SecondsFrom::kEarlierRuns): by those alone
/// whose plans were most like it (PlanTraits).
void ApplyOwnRuns(const Job& job, const PlanOptions& options, Script* script, Plan& plan);

}  // namespace strata
