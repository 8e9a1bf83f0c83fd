// PlanSeconds: the costs that a plan is chosen by, and where their seconds come from. Private to
// the package.
#pragma once

#include "engine/plan/uncut_plan.h"

namespace strata {

/// Sets plan.costs where the job's cuts, its limit or a choice need them. Seconds are those of the
/// job's file or, for a partition by time, measured. Where something is "auto" they come from what
/// was measured of these layers before, in a training or alone, of others from rates that are
/// measured once a machine (Calibration), else they are stated: where no layer can run, where
/// several machines must agree on them, and with STRATA_RATES=stated in the environment, which
/// gives the same plan everywhere. Without shapes "auto" has no costs. Where nothing is chosen,
/// options.wants_known asks for what was measured before. Throws as MakePlan().
void SetPlanCosts(const Job& job, const PlanOptions& options, const MicroBatchShapes& shapes,
                  Script* script, Plan& plan);

}  // namespace strata
