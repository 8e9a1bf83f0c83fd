// StepWindow: medians of the measured seconds of consecutive training steps.
#pragma once

#include <optional>
#include <vector>

#include "engine/cost/profile.h"

namespace strata {

/// Seconds of a stage's layers per micro-batch, without waiting. Recomputation counts as forward.
struct StageSeconds {
  double forward = 0;
  double backward = 0;  ///< gradients of inputs and of weights
};

/// The measurements of a step.
struct MeasuredStep {
  std::vector<StageSeconds> stages;  ///< of the slowest replica
  double seconds = 0;
  // Seconds summed over all ranks:
  double clear = 0;   ///< making the gradients zero
  double norm = 0;    ///< the sum of squares of the gradients; 0 = not known
  double update = 0;  ///< the optimizer step
  /// The share of its computing time during which a rank had its core, of the rank with the
  /// smallest share.
  double processor_share = 1;

  bool is_disturbed() const { return processor_share < kLeastProcessorShare; }
};

class StepWindow {
 public:
  /// kSteps: the steps in a window. kUnsettled: the steps skipped before a window, because the
  /// first steps of a program, and those after a move, are slower.
  static constexpr int kSteps = 10, kUnsettled = 3;
  /// The fewest steps from which a training that ends before its window is full gives medians.
  static constexpr int kFewest = 3;

  /// Call after each step. Returns the medians once the window is full; medians ignore a single
  /// slow step.
  std::optional<MeasuredStep> Add(const MeasuredStep& step);
  /// Call after the last step. Returns the medians of the window so far if it has at least kFewest
  /// steps.
  std::optional<MeasuredStep> Rest() const;
  /// Call when the program changes: empties the window and skips unsettled steps again.
  void Restart();

 private:
  MeasuredStep Medians() const;

  std::vector<MeasuredStep> steps_;  // without the unsettled ones
  int unsettled_ = kUnsettled;       // unsettled steps that are still to be skipped
};

}  // namespace strata
