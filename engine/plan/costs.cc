#include "engine/plan/costs.h"

#include "engine/plan/size_class.h"

namespace strata {

ModelCosts CostsOf(const Job& job, const Plan& plan, Script* script) {
  std::vector<TensorSpecs> outputs;
  for (const LayerPlan& layer : plan.layers) outputs.push_back(layer.output);
  return CostsOf(job, plan.stages.front().input, outputs, plan.topology.Size("model"), script);
}

DeviceRates NominalDevice(const std::string& device) {
  if (device == "cuda") {
    return {.flops = 60e12, .memory = 1.5e12, .axis = 100e9, .launch = 5e-6};
  }
  return {.flops = 50e9, .memory = 10e9, .axis = 2e9, .launch = 5e-6};
}

StageCost WithConnections(const Plan& plan, const StagePlan& stage, StageCost sum) {
  if (plan.topology.Size("model") > 1 || stage.input.empty()) return sum;
  const int64_t chain = sum.input_bytes;
  sum.input_bytes = 0;
  for (const TensorSpec& spec : stage.input) sum.input_bytes += AllocatedBytes(spec.bytes());
  sum.output_bytes = 0;
  for (const TensorSpec& spec : stage.output) sum.output_bytes += AllocatedBytes(spec.bytes());
  for (int64_t* held :
       {&sum.kept_bytes, &sum.forward_peak, &sum.backward_peak, &sum.input_grad_peak}) {
    *held += sum.input_bytes - chain;
  }
  return sum;
}

std::vector<StageCost> StageCosts(const ModelCosts& costs, const Plan& plan) {
  std::vector<int> segments;
  for (const LayerPlan& layer : plan.layers) segments.push_back(layer.segment);
  std::vector<StageCost> stages;
  for (const StagePlan& stage : plan.stages) {
    stages.push_back(
        WithConnections(plan, stage, SumLayers(costs, stage.begin, stage.end, segments)));
  }
  return stages;
}

}  // namespace strata
