#include "engine/forecast/run_profile.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "engine/forecast/step_costs.h"
#include "engine/plan/plan_costs.h"
#include "engine/schedule/simulator.h"

namespace strata {
namespace {

/// Iterations of ScaleKinds(). With more, small differences between ranks would be attributed to
/// the few layers that only one of them has.
constexpr int kRounds = 5;

/// The kind of each layer as a number, equal for layers that cost the same. The loss is the last
/// entry.
std::vector<int> KindsOf(const Job& job, const Plan& plan) {
  const MeasureTask task = TaskOf(job, plan);
  std::map<std::string, int> numbers;
  std::vector<int> kinds;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const int next = static_cast<int>(numbers.size());
    kinds.push_back(numbers.emplace(LayerKey(task, i), next).first->second);
  }
  kinds.push_back(static_cast<int>(numbers.size()));
  return kinds;
}

/// Calls the function for each layer with the entry of its stage, and for the loss with the last
/// stage's. The backward of a head in chunks and of its loss is part of the stage's forward.
template <class Function>
void ForEachLayer(ModelCosts& costs, const Plan& plan, const std::vector<StageSeconds>& of_stages,
                  const Function& function) {
  StageSeconds of_head = of_stages.back();
  if (costs.chunk_rows > 0) of_head.backward = of_head.forward;
  const size_t head = costs.layers.size() - 1;
  for (size_t i = 0; i < head; ++i) {
    function(i, costs.layers[i], of_stages[plan.layers[i].stage]);
  }
  function(head, costs.layers[head], of_head);
  function(head + 1, costs.loss, of_head);
}

/// One iteration of Richardson and Lucy's method: scales every kind of layer by the weighted mean
/// of the ratios of measured to expected seconds of the stages that have it. Each iteration brings
/// the expected seconds of the stages closer to the measured ones.
void ScaleKinds(const std::vector<StageSeconds>& ratios, const Plan& plan,
                const std::vector<int>& kinds, ModelCosts& costs) {
  std::vector<StageSeconds> had(kinds.back() + 1), gets(kinds.back() + 1);
  ForEachLayer(costs, plan, ratios, [&](size_t i, LayerCost& cost, const StageSeconds& by) {
    const double backward = cost.input_grad.seconds + cost.weight_grad.seconds;
    had[kinds[i]].forward += cost.forward.seconds;
    had[kinds[i]].backward += backward;
    gets[kinds[i]].forward += by.forward * cost.forward.seconds;
    gets[kinds[i]].backward += by.backward * backward;
  });
  ForEachLayer(costs, plan, ratios, [&](size_t i, LayerCost& cost, const StageSeconds&) {
    const StageSeconds &old = had[kinds[i]], &now = gets[kinds[i]];
    Scale({Ratio(now.forward, old.forward), Ratio(now.backward, old.backward)}, cost);
  });
}

/// Shares measured seconds of stages out among layers: first by kinds of layers, then what still
/// differs among all layers of a stage.
ModelCosts SharedOut(ModelCosts costs, const Plan& plan, const std::vector<int>& kinds,
                     const std::vector<StageSeconds>& measured) {
  for (int round = 0; round < kRounds; ++round) {
    ScaleKinds(Ratios(measured, costs, plan), plan, kinds, costs);
  }
  ForEachLayer(costs, plan, Ratios(measured, costs, plan),
               [](size_t, LayerCost& cost, const StageSeconds& by) { Scale(by, cost); });
  return costs;
}

/// Solves for the seconds per action with which the simulated step takes as long as the measured
/// one. A step is the longest of many chains of actions, so its time is a convex function of the
/// seconds per action, and Newton's method converges to the root. If the training waited for data,
/// the step tells nothing about actions. So the result is at most ten times the usual seconds, plus
/// a twentieth of the step divided by the number of actions of the longest row.
double ActionSeconds(const schedule::Program& program, schedule::Costs costs,
                     const MeasuredStep& step) {
  constexpr double kSmall = 1e-6, kNear = 1e-3;
  constexpr int kMostRounds = 8;
  const auto seconds_with = [&](double action) {
    costs.action = action;
    return Simulate(program, costs).makespan;
  };
  double action = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    const double seconds = seconds_with(action);
    const double each = (seconds_with(action + kSmall) - seconds) / kSmall;
    if (std::abs(seconds - step.seconds) <= kNear * step.seconds) break;
    if (each == 0) break;  // the step takes so long that kSmall is lost by rounding
    action = std::max(0.0, action + (step.seconds - seconds) / each);
  }
  size_t longest = 1;
  for (const auto& row : program.rows) longest = std::max(longest, row.size());
  return std::min(action, 10 * kActionSeconds + step.seconds / 20 / static_cast<double>(longest));
}

PassSeconds SecondsOf(const LayerCost& cost) {
  return {cost.forward.seconds, cost.input_grad.seconds, cost.weight_grad.seconds};
}

}  // namespace

bool TellsOfLayers(const Job& job, const Plan& plan) {
  return job.rebalance && plan.device == "cpu" && plan.topology.Size(kModelAxis) <= 1 &&
         plan.costs && plan.costs->is_measured();
}

std::vector<StageSeconds> ExpectedStages(const ModelCosts& costs, const Plan& plan) {
  std::vector<StageSeconds> expected;
  for (const StageCost& stage : StageCosts(costs, plan)) {
    const double slowness = plan.SlownessOf(plan.stages[expected.size()].rank);
    expected.push_back({slowness * (stage.forward.seconds + stage.recompute.seconds),
                        slowness * stage.backward_seconds()});
  }
  return expected;
}

double Ratio(double measured, double expected) {
  return measured > 0 && expected > 0 ? measured / expected : 1;
}

std::vector<StageSeconds> Ratios(const std::vector<StageSeconds>& measured, const ModelCosts& costs,
                                 const Plan& plan) {
  std::vector<StageSeconds> ratios = ExpectedStages(costs, plan);
  for (size_t s = 0; s < ratios.size(); ++s) {
    ratios[s] = {Ratio(measured[s].forward, ratios[s].forward),
                 Ratio(measured[s].backward, ratios[s].backward)};
  }
  return ratios;
}

void Scale(const StageSeconds& by, LayerCost& cost) {
  cost.forward.seconds *= by.forward;
  cost.input_grad.seconds *= by.backward;
  cost.weight_grad.seconds *= by.backward;
}

Profile ProfileOfRun(const Job& job, const Plan& plan, const MeasuredStep& step,
                     const schedule::Program& program) {
  ModelCosts costs = SharedOut(*plan.costs, plan, KindsOf(job, plan), step.stages);
  Profile profile;
  for (const LayerCost& layer : costs.layers) profile.layers.push_back(SecondsOf(layer));
  profile.loss = SecondsOf(costs.loss);
  double elements = 0;  // trainable elements of all ranks, times the slowness of each
  const int replicas = plan.topology.Size(kDataAxis);
  const std::vector<StageCost> stages = StageCosts(costs, plan);
  for (const StagePlan& stage : plan.stages) {
    elements += plan.SlownessOf(stage.rank) *
                static_cast<double>(stages[stage.stage].parameters * replicas);
  }
  const auto each = [](double measured, double of_elements, double known) {
    return measured > 0 && of_elements > 0 ? measured / of_elements : known;
  };
  profile.clear = each(step.clear, elements, costs.clear_seconds);
  profile.norm = each(step.norm, elements, costs.norm_seconds);
  profile.update =
      each(step.update, job.zero > 0 ? elements / replicas : elements, costs.update_seconds);
  profile.input = costs.input_seconds;
  profile.target = costs.target_seconds;
  profile.link = costs.link;
  SetSeconds(costs, profile, costs, plan.device);
  profile.action = ActionSeconds(program, StepCosts(job, plan, costs, LinksOfStages(plan)), step);
  return profile;
}

}  // namespace strata
