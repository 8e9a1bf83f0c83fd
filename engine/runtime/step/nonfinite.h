// NonFiniteSteps: handles steps whose loss or gradients are not finite, and reports their cause.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/results.h"
#include "engine/runtime/stage/examiner.h"
#include "engine/runtime/stage/rank_context.h"
#include "engine/runtime/step/runner.h"
#include "engine/runtime/step/totals.h"
#include "engine/runtime/update/rank_stages.h"

namespace strata {

/// Applies job.nonfinite. The order of calls for each step: Begin(), the step, End().
class NonFiniteSteps {
 public:
  /// Everything must outlive this object.
  NonFiniteSteps(const RankContext& context, RankStages& stages, Runner& runner)
      : context_(context), stages_(stages), runner_(runner) {}

  /// Keeps a copy of the layers' buffers, which a step changes before its update, in case the step
  /// is skipped or run once more.
  void Begin();
  /// Collective. `totals`: of the step number `step`. If they are not finite, the step runs once
  /// more on a new feed of the same data to be examined, and the verdict gets the report. With
  /// "warn" only the first of several such steps in a row is examined, because the later ones
  /// already have its weights. Returns true if the step is skipped and the training continues.
  ///
  /// An overflow of gradients in float16 is a different case while the scale of the loss can still
  /// be lowered: the step is skipped whatever job.nonfinite says, and the scale is lowered on all
  /// ranks.
  bool End(const Totals& totals, const std::function<std::unique_ptr<Feed>()>& feed, int64_t step,
           StepVerdict& verdict);

 private:
  bool counts() const { return context_.job.nonfinite == "warn"; }
  NonFinite Examine(const Totals& totals, Feed& feed, int64_t step);

  const RankContext& context_;
  RankStages& stages_;
  Runner& runner_;
  bool was_finite_ = true;  // of the last step; true before the first
};

/// The finding of one rank as JSON, for the other ranks.
std::string ToText(const std::optional<Finding>& finding, bool has_finite_weights);
/// Selects the first finding from the texts of all ranks.
NonFinite FirstOf(const std::vector<std::string>& texts);
/// Formats a number: "nan" of either sign, "inf", "0.25".
std::string NumberText(double value);

}  // namespace strata
