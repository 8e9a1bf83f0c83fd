// What a job leaves to us: its cuts, its schedule, its stages per rank. Private to the package.
#pragma once

#include "engine/forecast/users_program.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/uncut_plan.h"

namespace strata {

/// The job with what there is no choice of: one rank, or a schedule of one number of stages.
Job Narrowed(Job job, const Extent& extent);

/// Whether anything is left to be chosen.
bool IsChosen(const Job& job);

/// The plan with the least simulated step that PlanJob() describes, and a notice that says what was
/// chosen and what it is worth. Throws ConfigError where no way can be, with why the first cannot.
Plan ChoosePlan(const Job& job, const UncutPlan& uncut_plan, const Extent& extent, Script* script);

}  // namespace strata
