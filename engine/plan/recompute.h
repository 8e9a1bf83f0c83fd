// Recompute: decides which layers of a plan run forward again before their backward.
#pragma once

#include <vector>

#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"

namespace strata {

/// Sets LayerPlan::segment of the layers that job.recompute selects. REQUIRES: the layers and
/// stages are planned. Throws ConfigError if a function returns something else than a boolean or
/// nil. `script` may be null if there is no function. For "auto" it sets none: PlanJob()
/// (search/plan_job.h) later fits the segments to the program.
void PlanSegments(const Job& job, Script* script, Plan& plan);

/// Calls the job's recompute function for the layer at `place` as if it were on `stage`, and
/// returns its answer. Neighbouring parts of a layer are passed as one layer, with its index, type
/// and name. Throws ConfigError if the answer is neither a boolean nor nil.
bool IsChosen(const Job& job, const Plan& plan, int place, int stage, Script& script);

/// The stages that have a layer with a segment, ascending.
std::vector<int> RecomputedStages(const Plan& plan);

}  // namespace strata
