#include "engine/forecast/step_costs.h"

#include <algorithm>

#include "engine/base/check.h"

namespace strata {
namespace {

/// Extra seconds of an action. 0 with stated rates, which belong to no real machine, and on a GPU,
/// which goes on computing while its host starts the next action.
double ActionSeconds(const Plan& plan, const ModelCosts& costs) {
  return plan.device == "cpu" && costs.is_measured() ? costs.action_seconds : 0;
}

/// The seconds of summing gradients over the replicas. Each rank owns a part: it receives the part
/// from all others, sums it, and sends the sum (with ZeRO-1 the new values) to all. The part is
/// read once for each rank and written once, and the sums of all parts are copied into place. This
/// takes as long per byte as the optimizer step, which reads and writes memory in the same way.
double ReduceSeconds(const StageCost& stage, int replicas, const LinkRates& link,
                     const ModelCosts& costs) {
  if (replicas == 1 || stage.gradient_bytes == 0) return 0;
  const auto bytes = static_cast<double>(stage.gradient_bytes);
  const double share = static_cast<double>(replicas - 1) / replicas;
  const double touched = bytes * ((replicas + 1.0) / replicas + 2);
  const double pace = costs.update_bytes > 0 ? costs.update_seconds / costs.update_bytes : 0;
  return 2 * link.Seconds(share * bytes) + touched * pace;
}

}  // namespace

LinkRates NominalLink(const std::string& device) {
  if (device == "cuda") return {.latency = 5e-6, .bandwidth = 100e9};
  return {.latency = 20e-6, .bandwidth = 2e9};
}

std::vector<StageLinks> LinksOfStages(const Plan& plan) {
  std::vector<StageLinks> links(plan.stages.size());
  if (plan.transport == "threads") return links;  // tensors stay in place
  if (!plan.links) {
    const bool is_measured = plan.costs && plan.costs->link.takes_time();
    const LinkRates link = is_measured ? plan.costs->link : NominalLink(plan.device);
    std::ranges::fill(links, StageLinks{.next = link, .data = link});
    return links;
  }
  const auto ranks_of = [&](const StagePlan& stage) {
    return plan.topology.AxisList(kPipeAxis, stage.rank);
  };
  for (size_t s = 0; s < links.size(); ++s) {
    const RankList ranks = ranks_of(plan.stages[s]);
    for (const RankList& replicas : plan.topology.CommLists(kDataAxis)) {
      if (std::ranges::find(ranks, replicas.front()) == ranks.end()) continue;
      links[s].data = links[s].data.SlowerOf(plan.links->Slowest(replicas));
    }
    if (s + 1 == links.size() || plan.stages[s + 1].rank == plan.stages[s].rank) continue;
    const RankList next = ranks_of(plan.stages[s + 1]);
    for (size_t i = 0; i < ranks.size(); ++i) {
      links[s].next = links[s].next.SlowerOf(plan.links->Of(ranks[i], next[i]));
    }
  }
  return links;
}

schedule::Costs NoCosts() {
  schedule::Costs costs;
  for (auto* list : {&costs.forward, &costs.input_grad, &costs.weight_grad, &costs.transfer,
                     &costs.latency, &costs.reduce, &costs.step, &costs.begin}) {
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

void AddMessage(const LinkRates& link, const StageCost& stage, double factor,
                schedule::Costs& costs) {
  costs.latency.push_back(factor * link.latency);
  costs.transfer.push_back(factor * link.Transfer(static_cast<double>(stage.output_bytes)));
}

schedule::Costs StepCosts(const Job& job, const Plan& plan, const ModelCosts& costs,
                          const std::vector<StageLinks>& links) {
  return StepCosts(job, plan, costs, StageCosts(costs, plan), links);
}

schedule::Costs StepCosts(const Job& job, const Plan& plan, const ModelCosts& costs,
                          const std::vector<StageCost>& stages,
                          const std::vector<StageLinks>& links) {
  STRATA_CHECK(costs.layers.size() == plan.layers.size()) << costs.layers.size();
  STRATA_CHECK(links.empty() || links.size() == plan.stages.size()) << links.size();
  const int replicas = plan.topology.Size(kDataAxis);
  schedule::Costs result = NoCosts();
  result.step = {0};  // the update is part of `begin`
  result.action = ActionSeconds(plan, costs);
  for (size_t s = 0; s < stages.size(); ++s) {
    const StageCost& stage = stages[s];
    const StageLinks link = links.empty() ? StageLinks() : links[s];
    const double slowness = plan.SlownessOf(plan.stages[s].rank);
    AddCompute(stage, slowness, result);
    AddMessage(s + 1 < stages.size() ? link.next : LinkRates(), stage, 1, result);
    const double own = static_cast<double>(stage.parameters);
    const double owners = job.zero > 0 ? replicas : 1;
    result.reduce.push_back(ReduceSeconds(stage, replicas, link.data, costs) +
                            slowness * own * costs.norm_seconds / owners);
    const double update = own * costs.update_seconds / owners;
    result.begin.push_back(slowness * (own * costs.clear_seconds + update));
  }
  result.forward.front() += plan.SlownessOf(plan.stages.front().rank) * costs.input_seconds;
  result.forward.back() += plan.SlownessOf(plan.stages.back().rank) * costs.target_seconds;
  return result;
}

}  // namespace strata
