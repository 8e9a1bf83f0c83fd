// Chooses what a job leaves open: its cuts, its schedule, its stages per rank. Private to the
// package.
#pragma once

#include "engine/forecast/users_program.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/uncut_plan.h"

namespace strata {

/// The job with the choices filled in that have only one possibility: on a single rank, or for a
/// schedule with one possible number of stages.
Job Narrowed(Job job, const Extent& extent);

/// True if something is left to choose.
bool IsChosen(const Job& job);

/// Chooses the plan with the shortest simulated step, as PlanJob() describes, and adds a notice of
/// what was chosen and what it gains. Throws ConfigError if no plan is possible, with the reason of
/// the first attempt.
Plan ChoosePlan(const Job& job, const UncutPlan& uncut_plan, const Extent& extent, Script* script);

}  // namespace strata
