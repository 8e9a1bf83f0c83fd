// Recompute: which layers of a plan run forward again before their backward.
#pragma once

#include <vector>

#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"

namespace strata {

/// Numbers the segments of job.recompute: LayerPlan::segment. REQUIRES: layers and stages are
/// planned. Throws ConfigError for a function that gives something else than a boolean; `script`
/// may be null without one. "auto" has none yet: PlanJob() (search/plan_job.h) fits
/// them to the program.
void PlanSegments(const Job& job, Script* script, Plan& plan);

/// The stages that have such a layer, ascending.
std::vector<int> RecomputedStages(const Plan& plan);

}  // namespace strata
