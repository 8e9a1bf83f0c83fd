// RunRecord: what `strata verify` compares, and the comparison.
#pragma once

#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/runtime/engine.h"

namespace strata::launcher {

/// Everything of a training that must not depend on how it was cut into stages.
struct RunRecord {
  std::string name;                      ///< for people: "pipe 3, 1f1b, gloo"
  std::vector<StepResult> steps;         ///< with losses of micro-batches and gradients
  std::vector<TensorDigest> parameters;  ///< after the last step
};

/// A step's part of a record as a message's content, and back: step, loss, grad_norm,
/// micro_batch_losses, gradients.
Value VerifiedStepValue(const StepResult& result);
StepResult VerifiedStepFrom(const Value& value);

/// The first place where two trainings differ, in the order in which things happen: each step's
/// losses, gradients (in the order of layers) and norm, then the parameters. Names step, tensor and
/// both values. "" when they are equal: bit for bit, or with a `tolerance` above 0 when no number
/// differs by more than this share; of tensors the norm counts then, and may differ by ten times
/// that, as what its elements add up from may cancel.
std::string FirstDifference(const RunRecord& a, const RunRecord& b, double tolerance = 0);

}  // namespace strata::launcher
