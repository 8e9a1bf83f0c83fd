#include "engine/plan/plan_costs.h"

#include <algorithm>
#include <utility>

#include "engine/base/machine/cores.h"
#include "engine/base/text.h"
#include "engine/job/parameter_groups.h"
#include "engine/layers/layer_types.h"

namespace strata {

namespace {

/// The bytes of optimizer state for parameters that a layer shares with others, beyond the moments.
int64_t SharedExtraState(const Job& job, int layer) {
  int64_t elements = 0;
  for (const ParameterSpec& parameter : SharedParameters(job.layers[layer])) {
    elements += ExtraState(job.optimizer, job.layers, layer, parameter, job.precision.params);
  }
  return elements * DTypeSize(job.precision.params);
}

/// Subtracts what is counted more than once for layers of one stage that share a tensor: in half
/// precision they share one copy of it, and the optimizer keeps its state once.
void CountTiedOnce(const Job& job, const Plan& plan, ModelCosts& costs) {
  const bool has_copies = job.precision.compute != job.precision.params;
  for (const TiePlan& tie : plan.ties) {
    for (auto use = tie.stages.begin(); use != tie.stages.end(); ++use) {
      if (std::find(tie.stages.begin(), use, *use) == use) continue;
      const int layer = tie.layers[static_cast<size_t>(use - tie.stages.begin())];
      costs.layers[layer].extra_state_bytes -= SharedExtraState(job, layer);
      if (!has_copies) continue;
      const int64_t copy = DTypeSize(job.precision.compute) * SharedElements(job.layers[layer]);
      costs.layers[layer].weight_bytes -= copy;
      costs.layers[layer].copy_bytes -= copy;
    }
  }
}

/// The outputs of the layers as they would be without half precision.
std::vector<TensorSpecs> OutputsOf(const Job& job, const Plan& plan) {
  std::vector<TensorSpecs> outputs;
  for (const LayerPlan& layer : plan.layers) {
    outputs.push_back(WithType(layer.output, job.precision.compute, DType::kFloat32));
  }
  return outputs;
}

}  // namespace

LayerHost HostOf(const Job& job, const Plan& plan) {
  const int share = std::max(1, MachineCores() / plan.topology.world_size());
  return {plan.device == "cpu", job.threads > 0 ? job.threads : share};
}

MeasureTask TaskOf(const Job& job, const Plan& plan, TensorSpecs input,
                   std::vector<TensorSpecs> outputs) {
  const int ranks = plan.topology.world_size();
  const int cores = MachineCores();
  MeasureTask task = {.job = &job,
                      .input = std::move(input),
                      .outputs = std::move(outputs),
                      .batch = plan.batch,
                      .device = plan.device};
  task.threads = HostOf(job, plan).threads;
  task.model = std::max(1, plan.topology.Size(kModelAxis));
  task.copies = plan.device == "cpu" ? std::clamp(cores / task.threads, 1, ranks) : 1;
  return task;
}

MeasureTask TaskOf(const Job& job, const Plan& plan) {
  MeasureTask task = TaskOf(job, plan, plan.stages.front().input, OutputsOf(job, plan));
  task.plan = TraitsOf(plan);
  return task;
}

PlanTraits TraitsOf(const Plan& plan) {
  PlanTraits traits = {.places = {},
                       .transport = plan.transport,
                       .plan = {plan.bounds, plan.stage_ranks(), plan.schedule}};
  for (const LayerPlan& layer : plan.layers) {
    const StagePlan& stage = plan.stages[layer.stage];
    std::string place = Str(stage.rank, " of ", plan.pipe(), " x ", plan.topology.Size(kDataAxis));
    if (layer.segment >= 0) place += ", recomputed";
    traits.places.push_back(std::move(place));
  }
  return traits;
}

ModelCosts CostsOf(const Job& job, const Plan& plan, Script* script) {
  ModelCosts costs = CostsOf(job, plan.stages.front().input, OutputsOf(job, plan),
                             plan.topology.Size("model"), script, HostOf(job, plan));
  CountTiedOnce(job, plan, costs);
  return costs;
}

std::vector<StageCost> StageCosts(const ModelCosts& costs, const Plan& plan) {
  const std::vector<int> segments = plan.segments();
  std::vector<StageCost> stages;
  for (const StagePlan& stage : plan.stages) {
    stages.push_back(SumLayers(costs, stage.begin, stage.end, segments));
  }
  return stages;
}

}  // namespace strata
