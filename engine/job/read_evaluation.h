// The keys eval and stop of a job, and whatever else looks at evaluations. Errors are ConfigErrors
// with the job's place.
#pragma once

#include <vector>

#include "engine/job/job.h"
#include "engine/job/job_keys.h"

namespace strata {

/// The metric is accuracy where the loss has classes.
EvalSpec ReadEval(const JobKeys& keys, const LayerSpec& loss);
/// What `key` looks at: a number that evaluations give, such as "test.loss". The metric's name says
/// whether more is better, if `mode` ("min", "max") is null; of a function's name nobody knows it.
MonitorSpec ReadMonitor(const JobKeys& keys, const char* key, const std::string& monitor,
                        const Value& mode, const EvalSpec& eval);
MonitorSpec ReadStop(const JobKeys& keys, const Job& job);
/// Refuses "epoch" for eval.every and save.every where the training's data has no end.
void CheckEpochs(const JobKeys& keys, const Job& job);
/// Refuses stop, save.best and a plateau that no evaluation serves.
void CheckEvaluated(const JobKeys& keys, const Job& job);

}  // namespace strata
