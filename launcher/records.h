// Records: steps and evaluations as plain data, for --log=F.jsonl and for the way from rank 0 to
// the launcher. The keys are stable.
#pragma once

#include "engine/base/value.h"
#include "engine/runtime/engine.h"

namespace strata::launcher {

/// {"step": counted from 0, "loss", "grad_norm", "lr", "samples", "seconds", "samples_per_second",
/// "peak_memory": bytes, "bubble": predicted share} and, where the result has them,
/// "micro_batch_losses": [...].
Value StepRecord(const StepResult& result, double bubble);

/// {"step": the last one before it, "test_loss", "test_samples"} and, where there is one,
/// "accuracy": a share.
Value EvalRecord(int64_t steps_done, const EvalResult& result);

/// [{"path", "digest", "norm"}, ...].
Value DigestsValue(const std::vector<TensorDigest>& digests);
std::vector<TensorDigest> DigestsFrom(const Value& value);

/// A number of a record: JSON has no way to write those that are not finite but as text.
double NumberOf(const Value& value);

}  // namespace strata::launcher
