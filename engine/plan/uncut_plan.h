// UncutPlan: a job that is placed except for its cuts, so that it can be cut in many ways.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/plan/plan.h"

namespace strata {

/// The shapes of a micro-batch at the input and after each layer. Both are empty if they are not
/// known.
struct MicroBatchShapes {
  TensorSpecs input;
  std::vector<TensorSpecs> outputs;
  std::optional<FirstBatch> first =
      {};  ///< the first micro-batch, if the training has a data function
};

class UncutPlan {
 public:
  /// Throws as MakePlan() does for faults that do not depend on cuts.
  UncutPlan(const Job& job, const PlanOptions& options, Script* script);

  /// Makes it from a plan that is to be cut anew. Nothing is measured and no data is read.
  UncutPlan(const Job& job, const Plan& plan, Script* script);

  /// The plan without its cuts and without everything that follows from them.
  const Plan& plan() const { return uncut_; }

  /// Cuts the list into one stage for each entry of `stage_ranks`. `job` may differ from the job of
  /// the constructor in its partition, recompute and schedule. `settings` are as
  /// PlanOptions::settings. Throws as MakePlan() does.
  Plan Cut(const Job& job, const std::vector<int>& stage_ranks,
           const std::vector<StageSetting>& settings) const;

 private:
  Plan uncut_;
  MicroBatchShapes shapes_;
  Script* script_;
};

/// Refuses max_norm where it would give wrong results. A layer with max_norm writes to its
/// parameter in a forward. Throws ConfigError if other ranks have a copy of the parameter, or if
/// the forward runs again, because the copies or the passes would then differ. `again` are stages
/// that the program runs forward again as a whole.
void CheckMaxNorm(const Job& job, const Plan& plan, std::span<const int> again);

/// If the seconds of the plan are means over all earlier runs (ModelCosts::ran), replaces them by
/// those of the runs whose plans were most like this one (PlanTraits).
void ApplyOwnRuns(const Job& job, const PlanOptions& options, Script* script, Plan& plan);

}  // namespace strata
