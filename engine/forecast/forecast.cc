#include "engine/forecast/forecast.h"

#include <algorithm>
#include <utility>

#include "engine/forecast/evaluate.h"
#include "engine/forecast/planned_program.h"
#include "engine/forecast/step_costs.h"
#include "engine/schedule/lowering.h"

namespace strata {

MachineRates NominalRates(const std::string& device) {
  if (device == "cuda") {
    return {.name = "a nominal GPU (60 TFLOP/s, 1.5 TB/s, links of 100 GB/s)",
            .device = NominalDevice(device),
            .link = NominalLink(device)};
  }
  return {.name = "a nominal core (50 GFLOP/s, 10 GB/s, links of 2 GB/s)",
          .device = NominalDevice(device),
          .link = NominalLink(device)};
}

namespace {

void ScaleSeconds(double factor, StageCost& stage) {
  for (Work* pass : {&stage.forward, &stage.input_grad, &stage.weight_grad, &stage.recompute}) {
    pass->seconds *= factor;
  }
}

/// A forecast with costs, program and memory, before the simulation.
StepForecast Begin(const Job& job, const Plan& plan, ModelCosts costs, Script* script) {
  StepForecast forecast;
  forecast.stages = StageCosts(costs, plan);
  for (const StagePlan& stage : plan.stages) {
    ScaleSeconds(plan.SlownessOf(stage.rank), forecast.stages[stage.stage]);
  }
  forecast.program = TrainingProgram(job, plan, static_cast<int>(plan.batch.micro_batches), script);
  forecast.memory = ForecastMemory(job, plan, costs, forecast.program);
  forecast.costs = std::move(costs);
  return forecast;
}

}  // namespace

double StepForecast::StageSeconds(int stage) const { return stages[stage].seconds(); }

int StepForecast::slowest_stage() const {
  int slowest = 0;
  for (int s = 1; s < static_cast<int>(stages.size()); ++s) {
    if (StageSeconds(s) > StageSeconds(slowest)) slowest = s;
  }
  return slowest;
}

double StepForecast::balance() const {
  double sum = 0;
  for (int s = 0; s < static_cast<int>(stages.size()); ++s) sum += StageSeconds(s);
  const double largest = StageSeconds(slowest_stage());
  return largest > 0 ? sum / static_cast<double>(stages.size()) / largest : 1;
}

StepForecast ForecastStep(const Job& job, const Plan& plan, const MachineRates& rates,
                          Script* script) {
  ModelCosts costs = CostsOf(job, plan, script);
  SetSeconds(costs, rates.device);
  StepForecast forecast = Begin(job, plan, std::move(costs), script);
  forecast.rates = rates;
  if (plan.links) forecast.rates.name += ", links as measured";
  const std::vector<StageLinks> links =
      plan.links ? LinksOfStages(plan)
                 : std::vector<StageLinks>(plan.stages.size(), {.next = rates.link, .data = {}});
  forecast.action_costs = StepCosts(job, plan, forecast.costs, links);
  forecast.action_costs.begin = forecast.action_costs.step = forecast.action_costs.reduce = {0};
  forecast.simulation = schedule::Simulate(forecast.program, forecast.action_costs);
  forecast.seconds = forecast.simulation.makespan;
  return forecast;
}

StepForecast ForecastHere(const Job& job, const Plan& plan, Script* script) {
  const MachineRates stated = NominalRates(plan.device);
  if (!plan.costs || !plan.costs->has_seconds()) return ForecastStep(job, plan, stated, script);
  StepForecast forecast = Begin(job, plan, *plan.costs, script);
  forecast.is_by_plan = true;
  forecast.rates.name = plan.costs->is_measured() ? plan.costs->SourceText() : stated.name;
  forecast.action_costs = StepCosts(job, plan, forecast.costs, LinksOfStages(plan));
  forecast.simulation = schedule::Simulate(forecast.program, forecast.action_costs);
  const schedule::Program lowered =
      schedule::LowerAndCheck(forecast.program, {.tied_stages = plan.tied_stages()});
  forecast.seconds = Evaluate(PlacedHere(job, plan, forecast.costs), lowered).step;
  return forecast;
}

int64_t SaveCopyBytes(const Plan& plan, const StepForecast& step) {
  int64_t most = 0;
  for (const RankMemory& rank : step.memory) {
    int64_t bytes = rank.weights + rank.optimizer;
    for (const StagePlan& stage : plan.stages) {
      for (int layer = stage.begin; stage.rank == rank.rank && layer < stage.end; ++layer) {
        bytes -= step.costs.layers[layer].copy_bytes;
      }
    }
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace strata
