// The picture of a planned job: its cuts, the step that is predicted, and one that was measured.
#pragma once

#include <vector>

#include "engine/forecast/forecast.h"
#include "engine/picture/picture.h"
#include "engine/plan/plan.h"
#include "engine/schedule/program.h"
#include "engine/schedule/simulator.h"
#include "engine/schedule/trace.h"
#include "engine/spec/job.h"

namespace strata::picture {

/// Bytes that a stage holds on its rank.
struct StageBytes {
  int64_t always = 0;      ///< weights, gradients, the optimizer's state
  int64_t kept = 0;        ///< of a micro-batch, from F to B or I
  int64_t recomputed = 0;  ///< of a micro-batch, from R to B or I
  int64_t deferred = 0;    ///< of a micro-batch, from I to W
};

/// Of every stage of the plan.
std::vector<StageBytes> BytesOfStages(const Job& job, const Plan& plan, const ModelCosts& costs);

/// The step that the simulator predicts, of one rank of the pipe axis each. Memory is what is held
/// between actions; what an action takes while it runs is not in it.
Timeline PredictedTimeline(const schedule::Program& program, const schedule::Simulation& simulation,
                           bool in_seconds, const std::vector<StageBytes>& bytes);

/// The plan with its predicted step. Of measured costs it is in seconds, and a stage costs its
/// seconds; else each forward, input gradient and weight gradient takes 1, and a stage costs its
/// floating-point operations.
Picture PlanPicture(const Job& job, const Plan& plan, const StepForecast& forecast);

/// The step of the trace with the median duration, of every rank. An action begins when what it
/// waits for is there. REQUIRES: not empty.
Timeline MeasuredTimeline(const schedule::Trace& trace);

}  // namespace strata::picture
