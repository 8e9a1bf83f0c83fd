// The keys optimizer, ema and lr_schedule of a job. Errors are ConfigErrors with the job's place.
#pragma once

#include <vector>

#include "engine/job/job.h"
#include "engine/job/job_keys.h"

namespace strata {

/// With its groups, each of which holds for some parameter.
OptimizerSpec ReadOptimizer(const JobKeys& keys, const std::vector<LayerSpec>& layers);
LrScheduleSpec ReadLrSchedule(const JobKeys& keys);

}  // namespace strata
