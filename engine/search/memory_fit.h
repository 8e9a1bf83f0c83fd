// Fits a plan into its memory limit: gives the cuts what they need to know of the schedule, and
// chooses the recomputation after them. Private to the package.
#pragma once

#include <vector>

#include "engine/forecast/users_program.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"
#include "engine/schedule/program.h"

namespace strata {

/// The memory settings of each stage under the job's schedule. Empty if the cuts do not need them,
/// that is without a memory limit unless cuts are by memory, and for the schedule "auto", which is
/// searched for what fits and keeps at least as many micro-batches alive as 1F1B.
std::vector<StageSetting> PlanSettings(const Job& job, const Extent& extent, Script* script);
/// Implements recompute = "auto": chooses the recomputed layers. Throws ConfigError if the plan
/// does not fit even so.
void FitRecomputation(const Job& job, Script* script, Plan& plan);
/// Throws ConfigError if the prediction for a rank is above the limit.
void CheckMemory(const Job& job, const Plan& plan, const schedule::Program& program);

}  // namespace strata
