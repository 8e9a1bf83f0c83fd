// Measure: measures how long the layers of a script's job take on this machine, for partition =
// "time". The results are kept in the shared cache folder.
#pragma once

#include "engine/cost/profile.h"
#include "engine/forecast/step_window.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/schedule/program.h"
#include "lua/core/state.h"

namespace strata::lua {

/// The process that runs the layers.
enum class MeasureIn {
  kThisProcess,
  /// A child process. For a process that will fork ranks: it must not run a layer itself, since the
  /// forked ranks would lack the threads that layers start.
  kChild,
};

/// The function for PlanOptions::measure. It shows its progress on standard error if that is a
/// terminal. `state` holds the functions of the job's script and must outlive the result.
///
/// The results are kept (profile_cache.h): the seconds of each distinct layer as soon as they are
/// known, and the rates of a link between two processes, which only MeasureIn::kChild measures. If
/// other programs used the processor meanwhile, a notice says so, and the results are valid for ten
/// minutes only. If the cache cannot be written, a notice says so, and the next process measures
/// again. If the time is limited, as for a calibration, a lock lets one process measure after the
/// other.
Measure MeasureHere(State& state, MeasureIn where);

/// Keeps the seconds that the steps of a training took on this machine, for the plans of later
/// trainings. `step` was measured under this plan and was not disturbed; `program` is the plan's
/// program, not lowered. Errors are ignored. REQUIRES: TellsOfLayers()
/// (engine/forecast/run_profile.h).
void RememberRun(const Job& job, const Plan& plan, const schedule::Program& program,
                 const MeasuredStep& step);

}  // namespace strata::lua
