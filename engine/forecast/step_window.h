// StepWindow: what the steps of a training took, as medians of some that follow each other.
#pragma once

#include <optional>
#include <vector>

#include "engine/cost/profile.h"

namespace strata {

/// Seconds of a stage's layers for a micro-batch, without waiting. Recomputation counts as forward.
struct StageSeconds {
  double forward = 0;
  double backward = 0;  ///< gradients of inputs and of weights
};

/// What a step took.
struct MeasuredStep {
  std::vector<StageSeconds> stages;  ///< of the slowest replica
  double seconds = 0;
  // Of all ranks together:
  double clear = 0;   ///< making the gradients zero
  double norm = 0;    ///< the gradients' sum of squares; 0 = not known
  double update = 0;  ///< of the optimizer
  /// In which share of the time that it computed the rank had its core, of the rank with the least.
  double processor_share = 1;

  bool is_disturbed() const { return processor_share < kLeastProcessorShare; }
};

class StepWindow {
 public:
  /// Steps whose medians count together, and steps before them that do not: the first ones of a
  /// program, and those behind a move, are slower.
  static constexpr int kSteps = 10, kUnsettled = 3;
  /// A training that ends before its window is full tells by so many steps at least.
  static constexpr int kFewest = 3;

  /// Behind each step. Gives the medians of a full window: what slowed down a step alone does not
  /// count.
  std::optional<MeasuredStep> Add(const MeasuredStep& step);
  /// Behind the last step: the medians of a window that is not full.
  std::optional<MeasuredStep> Rest() const;
  /// The next steps are those of another program.
  void Restart();

 private:
  MeasuredStep Medians() const;

  std::vector<MeasuredStep> steps_;  // without unsettled ones
  int unsettled_ = kUnsettled;       // still to come
};

}  // namespace strata
