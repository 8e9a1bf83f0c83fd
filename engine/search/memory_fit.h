// Fitting a plan into its memory limit: what its cuts should know, and what is done after them.
// Private to the package.
#pragma once

#include <vector>

#include "engine/forecast/users_program.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"
#include "engine/schedule/program.h"

namespace strata {

/// What the schedule keeps alive on each stage, where that matters to the cuts: with a limit, and
/// for cuts by memory. Else empty, and for "auto", which keeps what fits, at least as 1F1B.
std::vector<StageSetting> PlanSettings(const Job& job, const Extent& extent, Script* script);
/// recompute = "auto": says what is recomputed. Throws ConfigError where that is not enough.
void FitRecomputation(const Job& job, Script* script, Plan& plan);
/// Throws ConfigError where a rank would have more than the limit.
void CheckMemory(const Job& job, const Plan& plan, const schedule::Program& program);

}  // namespace strata
