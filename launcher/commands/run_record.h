// RunRecord: the record of a training that `strata verify` compares, and the comparison.
#pragma once

#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/runtime/results.h"

namespace strata::launcher {

/// All results of a training that must not depend on how it was cut into stages.
struct RunRecord {
  std::string name;                      ///< shown to the user: "pipe 3, 1f1b, gloo"
  std::vector<StepNumbers> steps;        ///< with losses of micro-batches and gradients
  std::vector<TensorDigest> parameters;  ///< after the last step
};

/// The recorded part of a step (step, loss, grad_norm, micro_batch_losses, gradients) as the
/// content of a message, and back.
Value VerifiedStepValue(const StepNumbers& result);
StepNumbers VerifiedStepFrom(const Value& value);

/// The first difference between two trainings, with step, tensor and both values; "" when there is
/// none. The order is: for each step its losses, the gradients by layer and the gradient's norm;
/// then the parameters.
/// A `tolerance` of 0 compares bits. A larger one is the share by which numbers may differ. It
/// compares the norms of tensors only, and allows ten times the share: a norm adds up many terms.
/// Norms may also differ by the share of the norm of all tensors.
std::string FirstDifference(const RunRecord& a, const RunRecord& b, double tolerance = 0);

}  // namespace strata::launcher
