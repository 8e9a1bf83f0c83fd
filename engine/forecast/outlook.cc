#include "engine/forecast/outlook.h"

#include <algorithm>
#include <numeric>

#include "engine/base/fields/quantity.h"
#include "engine/base/text.h"
#include "engine/forecast/forecast_text.h"
#include "engine/forecast/planned_program.h"
#include "engine/plan/recompute.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/program_search.h"

namespace strata {
namespace {

schedule::Costs EqualCosts(const StepForecast& forecast) {
  schedule::Costs costs;
  for (const StageCost& stage : forecast.stages) {
    const double forward = stage.forward.seconds;
    costs.recompute.push_back(forward > 0 ? std::min(stage.recompute.seconds / forward, 1.0) : 1);
  }
  return costs;
}

/// A lower bound of the bubble of all programs with the same sizes and costs; 0 if not known.
double LeastBubble(const schedule::Program& program, const schedule::Simulation& simulation,
                   schedule::Costs costs, const std::vector<int>& recomputed) {
  const int ranks = program.ranks(), stages = program.stages();
  if (stages % ranks != 0) return 0;
  // R can be delayed freely, because no other micro-batch waits for it. In the bound it is treated
  // as W is.
  const std::vector<double> weight_grad = costs.weight_grad;
  costs.weight_grad.resize(static_cast<size_t>(stages));
  for (int s = 0; s < stages; ++s) costs.weight_grad[s] = schedule::CostAt(weight_grad, s);
  for (const int s : recomputed) {
    const std::vector<double>& again = costs.recompute.empty() ? costs.forward : costs.recompute;
    costs.weight_grad[s] += schedule::CostAt(again, s);
  }
  const schedule::Sizes sizes = {ranks, stages / ranks, program.micro_batches};
  const double work = std::accumulate(simulation.busy.begin(), simulation.busy.end(), 0.0);
  const double bound = schedule::LowerBound(sizes, costs);
  return bound > 0 ? std::max(0.0, 1 - work / (ranks * bound)) : 0;
}

/// Searches the schedule again without the memory limit. recompute = "auto" recomputes nothing
/// then.
void WantMore(const Job& job, Plan plan, const StepForecast& forecast, const schedule::Costs& costs,
              Outlook& outlook) {
  plan.memory = plan.program_memory = 0;
  plan.memories.clear();
  if (job.recompute.method == RecomputeSpec::Method::kAuto) {
    for (LayerPlan& layer : plan.layers) layer.segment = -1;
  }
  schedule::ProgramSearchOptions options = AutoOptions(job, plan);
  options.stage_ranks = plan.stage_ranks();
  const schedule::Sizes sizes = {plan.pipe(), plan.stages_per_rank(),
                                 static_cast<int>(plan.batch.micro_batches)};
  const schedule::Program program = schedule::AddRecomputation(
      schedule::SearchProgram(sizes, options).program, RecomputedStages(plan));
  const schedule::Simulation simulation = schedule::Simulate(program, costs);
  const double now = outlook.simulation.makespan;
  const double saving = now > 0 ? 1 - simulation.makespan / now : 0;
  if (saving <= kLeastSaving) return;  // PlanJob() would not choose it
  outlook.wanted_memory = LargestTotal(ForecastMemory(job, plan, forecast.costs, program));
  outlook.wanted_bubble = simulation.bubble;
  outlook.saving = saving;
}

}  // namespace

Outlook LookOut(const Job& job, const Plan& plan, const StepForecast& forecast) {
  Outlook outlook;
  if (forecast.is_by_plan) outlook.costs = forecast.costs.SourceText();
  outlook.schedule = forecast.program.name;
  const schedule::Costs costs = forecast.is_by_plan ? forecast.action_costs : EqualCosts(forecast);
  outlook.simulation = schedule::Simulate(forecast.program, costs);
  outlook.least_bubble =
      LeastBubble(forecast.program, outlook.simulation, costs, RecomputedStages(plan));
  outlook.is_limited = job.schedule.name == "auto" && plan.memory > 0;
  if (outlook.is_limited) WantMore(job, plan, forecast, costs, outlook);
  return outlook;
}

std::string BubbleText(const Outlook& outlook) {
  const std::string least = FormatShare(outlook.least_bubble);  // if 0.0%, the text leaves it out
  return Str("schedule ", outlook.schedule, ", predicted bubble ",
             FormatShare(outlook.simulation.bubble), " (",
             least == FormatShare(0) ? "" : Str("no schedule has less than ", least, "; "),
             outlook.costs.empty() ? "forward, input gradient and weight gradient take 1 each"
                                   : "with " + outlook.costs,
             ")\n");
}

std::string MoreMemoryText(const Outlook& outlook) {
  if (!outlook.is_limited) return "";
  if (outlook.wanted_memory == 0) return "more memory would not make the step shorter\n";
  return Str("with memory = ", FormatAtLeast(outlook.wanted_memory), " the bubble would be ",
             FormatShare(outlook.wanted_bubble), ", the step ", FormatShare(outlook.saving),
             " shorter\n");
}

Value OutlookValue(const Outlook& outlook) {
  Value value;
  value.Set("bubble", outlook.simulation.bubble).Set("least_bubble", outlook.least_bubble);
  if (!outlook.is_limited) return value;
  Value more = Value::MakeMap();
  if (outlook.wanted_memory > 0) {
    more.Set("memory", outlook.wanted_memory).Set("bubble", outlook.wanted_bubble);
    more.Set("saving", outlook.saving);
  }
  return value.Set("more_memory", std::move(more));
}

}  // namespace strata
