// PlanSeconds: the costs by which a plan is chosen, and the source of their seconds. Private to the
// package.
#pragma once

#include "engine/plan/uncut_plan.h"

namespace strata {

/// Sets plan.costs if the job's cuts, its memory limit or a choice needs them. The seconds come
/// from the job's file or, for a partition by time, from a measurement. If something is "auto" they
/// come from the best of these sources:
///  1. earlier measurements of these layers, in a training or alone;
///  2. a short measurement of these layers now, if it fits the budget;
///  3. rates that are measured once per machine (Calibration);
///  4. stated rates, if no layer can run, if several machines must agree on the seconds, or if
///     STRATA_RATES=stated is in the environment, which gives the same plan everywhere.
/// Without shapes "auto" has no costs. If nothing is chosen, options.wants_known asks for earlier
/// measurements only. Throws as MakePlan() does.
void SetPlanCosts(const Job& job, const PlanOptions& options, const MicroBatchShapes& shapes,
                  Script* script, Plan& plan);

}  // namespace strata
