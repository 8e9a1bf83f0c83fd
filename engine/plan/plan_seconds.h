// PlanSeconds: the costs by which a plan is chosen, and the source of their seconds. Private to the
// package.
#pragma once

#include "engine/plan/uncut_plan.h"

namespace strata {

/// Sets plan.costs if the job's cuts, its memory limit or a choice needs them. The seconds come
/// from the first of these sources (SecondsFrom):
///  1. kFile: the job's file, `costs`;
///  2. kMeasured: this machine, that is what earlier runs of these layers took, else what they take
///     alone (measured now if it fits the budget, or for a partition by time in any case), else
///     what the probes of Calibration tell;
///  3. kStated: stated rates, if no layer can run, if several machines must agree on the seconds,
///     or if STRATA_RATES=stated is in the environment, which gives the same plan everywhere.
/// A partition by time must have measured seconds. Without shapes "auto" has no costs. If nothing
/// is chosen, options.wants_known asks for earlier measurements only. Throws as MakePlan() does.
void SetPlanCosts(const Job& job, const PlanOptions& options, const MicroBatchShapes& shapes,
                  Script* script, Plan& plan);

}  // namespace strata
