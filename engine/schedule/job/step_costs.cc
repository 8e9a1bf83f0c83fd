#include "engine/schedule/job/step_costs.h"

#include "engine/base/check.h"

namespace strata {
namespace {

/// Each rank owns a part of the gradients: takes it from all others, and gives the sum, or with
/// ZeRO-1 the new values, to all.
double ReduceSeconds(const StageCost& stage, int replicas, const LinkRates& link) {
  if (replicas == 1 || stage.gradient_bytes == 0) return 0;
  const double share = static_cast<double>(replicas - 1) / replicas;
  return 2 * link.Seconds(share * static_cast<double>(stage.gradient_bytes));
}

}  // namespace

LinkRates NominalLink(const std::string& device) {
  if (device == "cuda") return {.latency = 5e-6, .bandwidth = 100e9};
  return {.latency = 20e-6, .bandwidth = 2e9};
}

LinksRates NominalLinks(const Plan& plan) {
  if (plan.transport == "threads") return {};  // tensors stay where they are
  const LinkRates link = NominalLink(plan.device);
  return {.pipe = link, .data = link};
}

schedule::Costs NoCosts() {
  schedule::Costs costs;
  for (auto* list : {&costs.forward, &costs.input_grad, &costs.weight_grad, &costs.transfer,
                     &costs.reduce, &costs.step, &costs.begin}) {
    list->clear();
  }
  return costs;
}

void AddCompute(const StageCost& stage, double factor, schedule::Costs& costs) {
  costs.forward.push_back(factor * stage.forward.seconds);
  costs.recompute.push_back(factor * stage.recompute.seconds);
  costs.input_grad.push_back(factor * stage.input_grad.seconds);
  costs.weight_grad.push_back(factor * stage.weight_grad.seconds);
}

schedule::Costs StepCosts(const Job& job, const Plan& plan, const ModelCosts& costs,
                          const LinksRates& links) {
  STRATA_CHECK(costs.layers.size() == plan.layers.size()) << costs.layers.size();
  const int replicas = plan.topology.Size(kDataAxis);
  schedule::Costs result = NoCosts();
  result.step = {0};  // the update is part of `begin`
  for (const StageCost& stage : StageCosts(costs, plan)) {
    AddCompute(stage, 1, result);
    const bool is_last = result.forward.size() == plan.stages.size();
    result.transfer.push_back(
        is_last ? 0 : links.pipe.Seconds(static_cast<double>(stage.output_bytes)));
    const double own = static_cast<double>(stage.parameters);
    const double owners = job.zero == 1 ? replicas : 1;
    result.reduce.push_back(ReduceSeconds(stage, replicas, links.data) +
                            own * costs.norm_seconds / owners);
    const double update = own * costs.update_seconds / owners;
    result.begin.push_back(own * costs.clear_seconds + update);
  }
  result.forward.front() += costs.input_seconds;
  result.forward.back() += costs.target_seconds;
  return result;
}

}  // namespace strata
