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

/// Rounds of looking for what layers that are alike take. After more of them small differences
/// between ranks would be put down to the few layers that only one of them has.
constexpr int kRounds = 5;

/// The layers' kinds: equal numbers for layers that cost the same. The loss is the last of all.
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

/// Each layer with the ratio of its stage, the loss with the last one's.
template <class Function>
void ForEachLayer(ModelCosts& costs, const Plan& plan, const std::vector<StageSeconds>& of_stages,
                  const Function& function) {
  for (size_t i = 0; i < costs.layers.size(); ++i) {
    function(i, costs.layers[i], of_stages[plan.layers[i].stage]);
  }
  function(costs.layers.size(), costs.loss, of_stages.back());
}

/// Scales every kind by the mean of what its layers' stages took against what was expected: done
/// again and again, stages agree better each time (Richardson and Lucy's iteration).
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

/// What is left of the differences all layers of a stage share.
ModelCosts SharedOut(ModelCosts costs, const Plan& plan, const std::vector<int>& kinds,
                     const std::vector<StageSeconds>& measured) {
  for (int round = 0; round < kRounds; ++round) {
    ScaleKinds(Ratios(measured, costs, plan), plan, kinds, costs);
  }
  ForEachLayer(costs, plan, Ratios(measured, costs, plan),
               [](size_t, LayerCost& cost, const StageSeconds& by) { Scale(by, cost); });
  return costs;
}

/// Of each action beside its layers, as the step took so long. A step is the longest of many chains
/// of actions, so that its time is convex in the seconds of each, and Newton's method comes down to
/// the root. A training that waited for data tells nothing of actions: they take a twentieth of the
/// step at most, and ten times what they usually do.
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
    expected.push_back({stage.forward.seconds + stage.recompute.seconds, stage.backward_seconds()});
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
  double elements = 0;  // of all ranks
  const int replicas = plan.topology.Size(kDataAxis);
  for (const StageCost& stage : StageCosts(costs, plan)) {
    elements += static_cast<double>(stage.parameters * replicas);
  }
  const auto each = [](double measured, double of_elements, double known) {
    return measured > 0 && of_elements > 0 ? measured / of_elements : known;
  };
  profile.clear = each(step.clear, elements, costs.clear_seconds);
  profile.norm = each(step.norm, elements, costs.norm_seconds);
  profile.update =
      each(step.update, job.zero == 1 ? elements / replicas : elements, costs.update_seconds);
  profile.input = costs.input_seconds;
  profile.target = costs.target_seconds;
  profile.link = costs.link;
  profile.seconds_from = SecondsFrom::kEarlierRuns;
  SetSeconds(costs, profile, costs, plan.device);
  profile.action = ActionSeconds(program, StepCosts(job, plan, costs, LinksOfStages(plan)), step);
  return profile;
}

}  // namespace strata
