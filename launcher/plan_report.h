// PlanReport: a plan with its schedule, as `strata plan` shows it, and what is predicted of it.
#pragma once

#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/forecast/forecast.h"
#include "engine/forecast/outlook.h"
#include "engine/plan/plan.h"
#include "engine/spec/job.h"
#include "engine/spec/script.h"

namespace strata::launcher {

/// What is predicted of one step.
struct Forecast {
  StepForecast step;         ///< in seconds: measured ones, or of nominal devices
  Outlook outlook;           ///< of its schedule
  std::vector<int> buffers;  ///< per rank
};

/// Generates the job's program, proves that its lowered form is right, and simulates it. Throws
/// ConfigError: a schedule that the plan cannot have, or a wrong program.
Forecast Predict(const Job& job, const Plan& plan, Script* script);

/// Everything: tables of layers with their work and memory, and of stages, cuts, grid, batch,
/// schedule with its picture, bubble.
std::string PlanReport(const Job& job, const Plan& plan, const Forecast& forecast, bool color);

/// The same for programs: "name", PlanValue()'s keys, and "device", "transport", "ranks",
/// "schedule"
/// {"name", "makespan", "peak_activations", "buffers", and but "bubble" OutlookValue()'s},
/// "bubble", "summary" (SummaryValue()),
/// "forecast" (ForecastValue()) and "memory" (MemoryValue()). The keys are stable.
Value PlanRecord(const Job& job, const Plan& plan, const Forecast& forecast);

/// A few lines, for the head of a training.
std::string PlanSummary(const Job& job, const Plan& plan, const Forecast& forecast);

}  // namespace strata::launcher
