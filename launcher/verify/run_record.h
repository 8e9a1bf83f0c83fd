// RunRecord: the record of a training that `strata verify` compares, and the comparison.
#pragma once

#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/runtime/interface/engine.h"

namespace strata::launcher {

/// All results of a training that must not depend on how it was cut into stages.
struct RunRecord {
  std::string name;                      ///< for people: "pipe 3, 1f1b, gloo"
  std::vector<StepResult> steps;         ///< with losses of micro-batches and gradients
  std::vector<TensorDigest> parameters;  ///< after the last step
};

/// The recorded part of a step (step, loss, grad_norm, micro_batch_losses, gradients) as the
/// content of a message, and back.
Value VerifiedStepValue(const StepResult& result);
StepResult VerifiedStepFrom(const Value& value);

/// The first difference between two trainings, with step, tensor and both values; "" when there is
/// none. Compares, for each step, the losses, the gradients in the order of layers and the norm,
/// and then the parameters. With a `tolerance` of 0, bits are compared. With a larger one, numbers
/// may differ by this share. Of tensors only the norms are compared then; they may differ by ten
/// times the share, since the terms of an element may cancel each other.
std::string FirstDifference(const RunRecord& a, const RunRecord& b, double tolerance = 0);

}  // namespace strata::launcher
