// StepForecast: predicts the time, the waiting and the memory of a step of a planned job. The
// simulator runs the job's program with the costs of its layers, which are measured or come from
// the rates of a machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/forecast/memory_forecast.h"
#include "engine/forecast/step_costs.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"
#include "engine/plan/plan_costs.h"
#include "engine/schedule/program.h"
#include "engine/schedule/simulator.h"

namespace strata {

/// The rates that are assumed for the ranks and for their links.
struct MachineRates {
  std::string name;  ///< shown to the user
  DeviceRates device;
  LinkRates link = {};  ///< between any two ranks
};

/// Rates of a machine that was not measured: a server core, or an A100-like GPU. Use them for
/// shares and comparisons; the absolute seconds are not reliable.
MachineRates NominalRates(const std::string& device);

struct StepForecast {
  MachineRates rates;
  ModelCosts costs;
  std::vector<StageCost> stages;  ///< with the seconds that they take on their ranks
  schedule::Costs action_costs;
  schedule::Program program;  ///< compute actions only, not lowered
  schedule::Simulation simulation;
  /// Seconds from step to step. With measured costs they include sums, norms and the optimizer
  /// step.
  double seconds = 0;
  bool is_by_plan = false;         ///< true if the seconds are the plan's own
  std::vector<RankMemory> memory;  ///< of every rank of the pipe axis

  double step() const { return seconds; }
  bool is_measured() const { return costs.is_measured(); }
  /// Seconds of forward and backward of one micro-batch, recomputation included.
  double StageSeconds(int stage) const;
  int slowest_stage() const;
  /// The mean of the stages' seconds divided by the largest; 1 means that all stages take as long.
  double balance() const;
  int64_t peak_memory() const { return LargestTotal(memory); }
};

/// Predicts a step on a machine of these rates, without the optimizer step. Throws ConfigError if
/// the job's schedule does not support the plan's sizes or is incorrect.
StepForecast ForecastStep(const Job& job, const Plan& plan, const MachineRates& rates,
                          Script* script);

/// Predicts a step with the plan's seconds and the links of NominalRates() (threads need no links);
/// without such seconds, with NominalRates() alone. Throws as ForecastStep() does.
StepForecast ForecastHere(const Job& job, const Plan& plan, Script* script);

/// The size in bytes of the largest copy that a rank makes for a save, so that the training can
/// continue during the save: parameters, buffers and optimizer state. Copies in half precision are
/// not saved and not counted.
int64_t SaveCopyBytes(const Plan& plan, const StepForecast& step);

}  // namespace strata
