// Reads the keys eval and stop of a job, and the names of monitored numbers in other keys. All
// errors are ConfigErrors with the job's place.
#pragma once

#include <vector>

#include "engine/job/job.h"
#include "engine/job/job_keys.h"

namespace strata {

/// Reads the key eval. If the metric is "auto", it becomes accuracy for losses of classes, else
/// none.
EvalSpec ReadEval(const JobKeys& keys, const LayerSpec& loss);
/// Reads the number that `key` monitors, which must be one that evaluations give, such as
/// "test.loss". `mode` is "min", "max" or null; null takes the direction from the metric's name,
/// and is refused for a metric that is a function, since its direction is not known.
MonitorSpec ReadMonitor(const JobKeys& keys, const char* key, const std::string& monitor,
                        const Value& mode, const EvalSpec& eval);
MonitorSpec ReadStop(const JobKeys& keys, const Job& job);
/// Refuses "epoch" for eval.every and save.every if the training data has no end.
void CheckEpochs(const JobKeys& keys, const Job& job);

}  // namespace strata
