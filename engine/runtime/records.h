// Records: steps and evaluations as plain data, for --log=F.jsonl and for rank 0's messages to the
// launcher. The keys are stable.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/runtime/engine.h"

namespace strata {

/// A step: {"step" (counted from 0), "loss", "grad_norm", "lr", "samples", "seconds",
/// "data_seconds" (of these, for data), "samples_per_second", "peak_memory" (bytes)}, the predicted
/// share of time "bubble" where it is known, "bubble_measured" as it was on CPUs, and, if the
/// result has them, "parts": {name: mean} of the loss, "grad_norms": {layer: norm},
/// "micro_batch_losses": [...], "recut": {"cuts": [...], "moved", "saving" (share of a step),
/// "bytes", "seconds"} where layers moved behind the step.
/// `layers`: the job's, by which cuts are written; none: as places in its list.
Value StepRecord(const StepResult& result, std::optional<double> bubble = {},
                 const std::vector<LayerSpec>& layers = {});

/// An evaluation: {"step" (the last step before it), "test_loss", "test_samples"} and, if the loss
/// has parts, "test_parts", and, if there is a metric, "accuracy" (a share from 0 to 1). Further
/// ones are "metrics": {name: number}; "best" and "stop" are true where job.save.best or job.stop
/// say so.
Value EvalRecord(int64_t steps_done, const EvalResult& result);

/// "step 40: moved layers 3..5 from rank 1 to rank 0, for rank 1 takes 1.5 times as long as at
/// first: a step should be 12% shorter (45.0 MiB in 300 ms)".
std::string RecutText(const RecutReport& report);

/// {name: mean}.
Value PartsValue(const PartMeans& parts);

/// {"step" (the last step before them), "texts": those of job.eval.samples}.
Value SamplesRecord(int64_t steps_done, const std::vector<std::string>& texts);

/// Records {"step", "histograms": {parameter: histogram of its gradient}} of a step that has some
/// (job.histograms), each of at most a thousand parameters: a message has a largest size.
std::vector<Value> HistogramsRecords(const StepResult& result);

/// [{"path", "digest", "norm"}, ...].
Value DigestsValue(const std::vector<TensorDigest>& digests);
std::vector<TensorDigest> DigestsFrom(const Value& value);

/// A number of a record. Numbers that are not finite come as texts, since JSON cannot write them.
double NumberOf(const Value& value);

}  // namespace strata
