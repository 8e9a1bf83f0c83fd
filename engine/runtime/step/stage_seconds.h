// Layout of Totals::stage_seconds: the times of all stages of all ranks in one list. Ranks may have
// different numbers of stages, because a user's program says where they are.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/forecast/step_window.h"
#include "engine/plan/plan.h"
#include "engine/runtime/step/totals.h"

namespace strata {

/// The number of stages on all ranks before `rank`. The stages of `rank` follow them in the list,
/// with two numbers each (forward, backward). For rank world_size(): the number of all stages.
size_t StagesBefore(const Plan& plan, int rank);

/// For each stage, its times on the slowest replica.
std::vector<StageSeconds> MeasuredStages(const Totals& totals, const Plan& plan);

}  // namespace strata
