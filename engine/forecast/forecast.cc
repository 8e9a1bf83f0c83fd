#include "engine/forecast/forecast.h"

#include <algorithm>
#include <numeric>

#include "engine/schedule/job_program.h"

namespace strata {

MachineRates NominalRates(const std::string& device) {
  if (device == "cuda") {
    return {.name = "a nominal GPU (60 TFLOP/s, 1.5 TB/s, links of 100 GB/s)",
            .device = {.flops = 60e12, .memory = 1.5e12, .axis = 100e9, .launch = 5e-6},
            .latency = 5e-6,
            .bandwidth = 100e9};
  }
  return {.name = "a nominal core (50 GFLOP/s, 10 GB/s, links of 2 GB/s)",
          .device = {.flops = 50e9, .memory = 10e9, .axis = 2e9, .launch = 5e-6},
          .latency = 20e-6,
          .bandwidth = 2e9};
}

namespace {

/// What the simulator takes, from what the stages cost: forwards, backwards, messages.
schedule::Costs ActionCosts(const std::vector<StageCost>& stages, const MachineRates& rates) {
  schedule::Costs costs = {.forward = {}, .input_grad = {}, .weight_grad = {}, .transfer = {}};
  for (const StageCost& stage : stages) {
    costs.forward.push_back(stage.forward.seconds);
    costs.input_grad.push_back(stage.input_grad.seconds);
    costs.weight_grad.push_back(stage.weight_grad.seconds);
    costs.recompute.push_back(stage.recompute.seconds);
    const double bytes = static_cast<double>(stage.output_bytes);
    costs.transfer.push_back(rates.bandwidth > 0 ? bytes / rates.bandwidth : 0);
  }
  costs.comm = rates.latency;
  return costs;
}

}  // namespace

double StepForecast::StageSeconds(int stage) const {
  const StageCost& cost = stages[static_cast<size_t>(stage)];
  return cost.forward.seconds + cost.input_grad.seconds + cost.weight_grad.seconds +
         cost.recompute.seconds;
}

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
  StepForecast forecast;
  forecast.rates = rates;
  forecast.costs = CostsOf(job, plan, script);
  SetSeconds(forecast.costs, rates.device);
  forecast.stages = StageCosts(forecast.costs, plan);
  forecast.program = TrainingProgram(job, plan, static_cast<int>(plan.batch.micro_batches), script);
  forecast.action_costs = ActionCosts(forecast.stages, rates);
  forecast.simulation = schedule::Simulate(forecast.program, forecast.action_costs);
  forecast.memory = PredictMemory(job, plan, forecast.costs, forecast.program);
  return forecast;
}

}  // namespace strata
