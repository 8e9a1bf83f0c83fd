// What the stages of all ranks took, as one list (Totals::stage_seconds). Ranks may have different
// numbers of stages: a user's program says where they are.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/forecast/step_window.h"
#include "engine/plan/plan.h"
#include "engine/runtime/step/totals.h"

namespace strata {

/// How many stages the ranks before `rank` have together: its own follow theirs in the list, where
/// each has two numbers. Of rank world_size(): how many all have.
size_t StagesBefore(const Plan& plan, int rank);

/// Of each stage, where it took longest: on the slowest replica.
std::vector<StageSeconds> MeasuredStages(const Totals& totals, const Plan& plan);

}  // namespace strata
