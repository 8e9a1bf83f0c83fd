// Costs of a planned job: layer_costs.h with the plan's shapes, axes and stages, and what of it is
// measured.
#pragma once

#include <string>
#include <vector>

#include "engine/cost/layer_costs.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"

namespace strata {

/// The job's layers as the plan's ranks run them, to be measured. `input`, `outputs`: of the first
/// layer and of each, for a full micro-batch. The job must outlive it.
MeasureTask TaskOf(const Job& job, const Plan& plan, TensorSpecs input,
                   std::vector<TensorSpecs> outputs);
/// With the shapes and traits of a planned job.
MeasureTask TaskOf(const Job& job, const Plan& plan);
PlanTraits TraitsOf(const Plan& plan);

/// Of a planned job, with the plan's shapes and its model axis. Where the shapes are not known
/// (a data function that nobody may call) only parameters and their bytes are.
ModelCosts CostsOf(const Job& job, const Plan& plan, Script* script);

/// A stage's sum with the connections that come in and go out beside the chain.
StageCost WithConnections(const Plan& plan, const StagePlan& stage, StageCost sum);

/// Of every stage of the plan, with what it recomputes and receives.
std::vector<StageCost> StageCosts(const ModelCosts& costs, const Plan& plan);

}  // namespace strata
