#include "engine/plan/costs.h"

#include "engine/plan/size_class.h"

namespace strata {

ModelCosts CostsOf(const Job& job, const Plan& plan, Script* script) {
  std::vector<TensorSpecs> outputs;
  for (const LayerPlan& layer : plan.layers) outputs.push_back(layer.output);
  return CostsOf(job, plan.stages.front().input, outputs, plan.topology.Size("model"), script);
}

std::vector<StageCost> StageCosts(const ModelCosts& costs, const Plan& plan) {
  std::vector<int> segments;
  for (const LayerPlan& layer : plan.layers) segments.push_back(layer.segment);
  const int model = plan.topology.Size("model");
  std::vector<StageCost> stages;
  for (const StagePlan& stage : plan.stages) {
    StageCost& sum = stages.emplace_back(SumLayers(costs, stage.begin, stage.end, segments));
    if (model > 1 || stage.input.empty()) continue;
    // Connections cross too.
    const int64_t chain = sum.input_bytes;
    sum.input_bytes = 0;
    for (const TensorSpec& spec : stage.input) sum.input_bytes += AllocatedBytes(spec.bytes());
    sum.output_bytes = 0;
    for (const TensorSpec& spec : stage.output) sum.output_bytes += AllocatedBytes(spec.bytes());
    for (int64_t* held :
         {&sum.kept_bytes, &sum.forward_peak, &sum.backward_peak, &sum.input_grad_peak}) {
      *held += sum.input_bytes - chain;
    }
  }
  return stages;
}

}  // namespace strata
