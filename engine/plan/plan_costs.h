// The costs of a planned job: those of layer_costs.h with the shapes, axes and stages of the plan,
// and the tasks to measure them.
#pragma once

#include <string>
#include <vector>

#include "engine/cost/layer_costs.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"

namespace strata {

/// The task to measure the job's layers as the ranks of the plan run them. `input` is that of the
/// first layer and `outputs` those of all layers, for a full micro-batch. The job must outlive the
/// task.
MeasureTask TaskOf(const Job& job, const Plan& plan, TensorSpecs input,
                   std::vector<TensorSpecs> outputs);
/// Does the same with the shapes of the plan, and adds its traits.
MeasureTask TaskOf(const Job& job, const Plan& plan);
PlanTraits TraitsOf(const Plan& plan);
/// Where the ranks of the plan compute, with the threads of each.
LayerHost HostOf(const Job& job, const Plan& plan);

/// The costs of a planned job with the shapes and the model axis of the plan, without seconds. If
/// the shapes are not known (a data function that may not be called), only parameters and their
/// bytes are set.
ModelCosts CostsOf(const Job& job, const Plan& plan, Script* script);

/// The costs of every stage of the plan, with what it recomputes and receives.
std::vector<StageCost> StageCosts(const ModelCosts& costs, const Plan& plan);

}  // namespace strata
