// PlanReport: shows a plan with its schedule and its predicted step, as text and as JSON, for
// `strata plan`.
#pragma once

#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/forecast/forecast.h"
#include "engine/forecast/outlook.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"

namespace strata::launcher {

/// The prediction for one step.
struct Forecast {
  StepForecast step;                      ///< times in seconds, measured or of nominal devices
  Outlook outlook;                        ///< the schedule's simulation
  std::vector<int> buffers;               ///< the number of buffers of each rank
  std::vector<std::string> notices = {};  ///< what trials of layers found after the plan was made
};

/// Generates the job's program, checks its lowered form, and simulates it. Throws ConfigError if
/// the plan does not support the schedule, or if the program is incorrect.
Forecast ForecastPlan(const Job& job, const Plan& plan, Script* script);

/// The full report: tables of layers with their work and memory, tables of stages, cuts, grid,
/// batch, the schedule with its picture, and the bubble.
std::string PlanReport(const Job& job, const Plan& plan, const Forecast& forecast, bool color);

/// The version of PlanRecord(). It is increased when a key is removed or changes its meaning.
inline constexpr int kPlanRecordVersion = 1;

/// The report for programs, as a map. Its keys are stable:
///   "version", "name", the keys of PlanValue(), "device", "transport", "ranks", "bubble",
///   "schedule": {"name", "makespan", "peak_activations", "buffers", and the keys of OutlookValue()
///                without "bubble"},
///   "summary" (SummaryValue()), "forecast" (ForecastValue()), "memory" (MemoryValue())
Value PlanRecord(const Job& job, const Plan& plan, const Forecast& forecast);

/// The plan in a few lines, for the header of a training.
std::string PlanSummary(const Job& job, const Plan& plan, const Forecast& forecast);

}  // namespace strata::launcher
