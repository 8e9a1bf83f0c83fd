// Records: steps and evaluations as plain data, for --log=F.jsonl and for rank 0's messages to the
// launcher. The keys are a stable interface.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/runtime/results.h"

namespace strata {

/// A step as a map: {"step" (counted from 0), "loss", "grad_norm", "lr", "samples", "seconds",
/// "data_seconds" (the part spent waiting for data), "samples_per_second", "peak_memory" (bytes)}.
/// Further keys, present where the result has a value for them: "bubble" (the predicted idle
/// share), "bubble_measured" (the measured one, on CPUs), "parts" ({name: mean} of the loss),
/// "grad_norms" ({layer: norm}), "skipped" (skipped steps so far), "loss_scale",
/// "micro_batch_losses" ([...]), and, if layers moved after the step, "recut" ({"cuts": [...],
/// "moved", "saving" (share of a step), "bytes", "seconds"}). `layers`: the job's layers, which
/// decide how cuts are written; empty: as positions in the list.
Value StepRecord(const StepResult& result, std::optional<double> bubble = {},
                 const std::vector<LayerSpec>& layers = {});

/// An evaluation as a map: {"step" (the last step before it), "test_loss", "test_samples"}. Further
/// keys, present where the result has them: "test_parts" (of the loss), "accuracy" (a share from 0
/// to 1), "metrics" ({name: value}); "best" and "stop" are true if job.save.best or job.stop say
/// so.
Value EvalRecord(int64_t steps_done, const EvalResult& result);

/// "step 40: moved layers 3..5 from rank 1 to rank 0, for rank 1 takes 1.5 times as long as at
/// first: a step should be 12% shorter (45.0 MiB in 300 ms)".
std::string RecutText(const RecutReport& report);

/// Returns {name: mean}.
Value PartsValue(const PartMeans& parts);

/// The texts of job.eval.samples as {"step" (the last step before them), "texts"}.
Value SamplesRecord(int64_t steps_done, const std::vector<std::string>& texts);

/// Records {"step", "histograms": {parameter: histogram of its gradient}} of a step that has
/// histograms (job.histograms). Each record holds at most a thousand parameters, because messages
/// have a maximum size.
std::vector<Value> HistogramsRecords(const StepNumbers& result);

/// Returns [{"path", "digest", "norm"}, ...].
Value DigestsValue(const std::vector<TensorDigest>& digests);
std::vector<TensorDigest> DigestsFrom(const Value& value);

/// Reads a number of a record. Numbers that are not finite are stored as strings, because JSON
/// cannot represent them.
double NumberOf(const Value& value);

}  // namespace strata
