// Reads the keys optimizer, ema and lr_schedule of a job. All errors are ConfigErrors with the
// job's place.
#pragma once

#include <vector>

#include "engine/job/job.h"
#include "engine/job/job_keys.h"

namespace strata {

/// Reads the optimizer with its groups. Each group must apply to at least one parameter.
OptimizerSpec ReadOptimizer(const JobKeys& keys, const std::vector<LayerSpec>& layers);
LrScheduleSpec ReadLrSchedule(const JobKeys& keys);

}  // namespace strata
