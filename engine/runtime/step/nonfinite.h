// Steps whose loss or gradients are not finite: what becomes of them, and what the user is told.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/engine.h"
#include "engine/runtime/stage/examiner.h"
#include "engine/runtime/stage/rank_context.h"
#include "engine/runtime/step/runner.h"
#include "engine/runtime/step/totals.h"
#include "engine/runtime/update/rank_stages.h"

namespace strata {

/// Follows job.nonfinite. Each step: Begin(), the step, End().
class NonFiniteSteps {
 public:
  /// Everything must outlive this object.
  NonFiniteSteps(const RankContext& context, RankStages& stages, Runner& runner)
      : context_(context), stages_(stages), runner_(runner) {}

  /// Keeps what a step changes before its update, the buffers of layers: for a step that does not
  /// count, or runs once more.
  void Begin();
  /// Collective. `result` is that of the step, and `totals` are the runner's. Where they are not
  /// finite, a new feed of the same data makes the step run once more to be examined, and the
  /// result says what was found. With "warn" only the first of several such steps is examined:
  /// those after it have its weights. Returns whether the step is left out, and the training goes
  /// on.
  ///
  /// Gradients that overflow float16 are no such step while the scale of the loss can go back: the
  /// step is left out, whatever job.nonfinite is, and the scale changes on all ranks alike.
  bool End(const Totals& totals, const std::function<std::unique_ptr<Feed>()>& feed,
           StepResult& result);

 private:
  bool counts() const { return context_.job.nonfinite == "warn"; }
  NonFinite Examine(const Totals& totals, Feed& feed, int64_t step);

  const RankContext& context_;
  RankStages& stages_;
  Runner& runner_;
  bool was_finite_ = true;  // the last step, or there was none
};

std::string ToText(const std::optional<Finding>& finding, bool has_finite_weights);
/// Of the texts of all ranks: the first finding.
NonFinite FirstOf(const std::vector<std::string>& texts);
/// "nan" of either sign, "inf", "0.25".
std::string NumberText(double value);

}  // namespace strata
