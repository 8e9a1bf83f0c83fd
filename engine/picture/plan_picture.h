// Makes the picture of a planned job: its cuts, the predicted step, and a measured step.
#pragma once

#include <vector>

#include "engine/forecast/forecast.h"
#include "engine/job/job.h"
#include "engine/picture/picture.h"
#include "engine/plan/plan.h"
#include "engine/schedule/program.h"
#include "engine/schedule/row_walk.h"
#include "engine/schedule/simulator.h"
#include "engine/schedule/trace.h"

namespace strata::picture {

/// The bytes that a stage holds on its rank.
struct StageBytes {
  int64_t always = 0;        ///< weights, gradients, the optimizer's state
  schedule::Held held = {};  ///< for each micro-batch
};

/// The bytes of every stage of the plan.
std::vector<StageBytes> BytesOfStages(const Job& job, const Plan& plan, const ModelCosts& costs);

/// The simulated step, with one lane for each rank of the pipe axis. Memory is what a rank holds
/// between actions; temporary memory of a running action is left out.
Timeline ForecastTimeline(const schedule::Program& program, const schedule::Simulation& simulation,
                          bool in_seconds, const std::vector<StageBytes>& bytes);

/// The plan with its predicted step. If the costs were measured, times and the costs of stages are
/// in seconds. Otherwise each forward, input gradient and weight gradient takes 1, and a stage's
/// cost is its number of floating-point operations.
Picture PlanPicture(const Job& job, const Plan& plan, const StepForecast& forecast);

/// The trace's step with the median duration, with one lane for each rank. An action begins when
/// its inputs have arrived: the time that it waited is a gap. REQUIRES: the trace is not empty.
Timeline MeasuredTimeline(const schedule::Trace& trace);

}  // namespace strata::picture
