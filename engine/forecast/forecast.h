// StepForecast: what a step of a planned job takes before it runs: time, waiting, memory. The
// simulator runs the job's program with the costs of its layers, measured, or on a machine of given
// rates.
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

/// What the ranks and their links are taken to do.
struct MachineRates {
  std::string name;  ///< for people
  DeviceRates device;
  LinkRates link = {};  ///< between any two ranks
};

/// Of a machine that nobody measured: a core of a server, or an A100-like GPU. Shares and
/// comparisons are good where its seconds are not.
MachineRates NominalRates(const std::string& device);

struct StepForecast {
  MachineRates rates;
  ModelCosts costs;
  std::vector<StageCost> stages;
  schedule::Costs action_costs;
  schedule::Program program;  ///< compute only
  schedule::Simulation simulation;
  /// From step to step: with measured costs also sums, norms and the optimizer's step.
  double seconds = 0;
  bool is_by_plan = false;         ///< the seconds are the plan's own
  std::vector<RankMemory> memory;  ///< of every rank of the pipe axis

  double step() const { return seconds; }
  bool is_measured() const { return costs.is_measured(); }
  /// Forward and backward of one micro-batch, recomputation included.
  double StageSeconds(int stage) const;
  int slowest_stage() const;
  /// Mean over largest of the stages' seconds: 1 = all take as long.
  double balance() const;
  int64_t peak_memory() const { return LargestTotal(memory); }
};

/// On a machine of these rates, without its optimizer. Throws ConfigError where the job's schedule
/// cannot have the plan's sizes, or is wrong.
StepForecast ForecastStep(const Job& job, const Plan& plan, const MachineRates& rates,
                          Script* script);

/// With the seconds that the plan has and the links of NominalRates(), which threads do not need;
/// else by NominalRates() alone. Throws as ForecastStep().
StepForecast ForecastHere(const Job& job, const Plan& plan, Script* script);

/// Bytes of the largest copy that a rank takes for a save, so that the training goes on beside it:
/// parameters, buffers and optimizer state, without the copies in half precision, which no save
/// has.
int64_t SaveCopyBytes(const Plan& plan, const StepForecast& step);

}  // namespace strata
