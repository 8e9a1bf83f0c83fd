// Measure: what the layers of a script's job take on this machine, for partition = "time". What was
// measured once is kept in the shared cache folder.
#pragma once

#include "engine/cost/profile.h"
#include "engine/forecast/step_window.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/schedule/program.h"
#include "lua/core/state.h"

namespace strata::lua {

/// Where the layers run.
enum class MeasureIn {
  kThisProcess,
  /// For a process that will fork ranks. It runs no layer itself, since the threads that layers
  /// start would be missing in the ranks.
  kChild,
};

/// The way to measure for PlanOptions::measure. Shows its progress on standard error where that is
/// a terminal. `state` must outlive it, and holds the functions of the job's script.
///
/// What was measured is kept (profile_cache.h): the seconds of each distinct layer as soon as they
/// are known, and a link between two processes, which MeasureIn::kChild measures. What was measured
/// while other programs had the processor, a notice says so, is measured again ten minutes later. A
/// cache that cannot be written costs a notice, and that the next process measures again. Where
/// time is limited, as for a calibration, one process after the other measures.
Measure MeasureHere(State& state, MeasureIn where);

/// Keeps what the steps of a training on this machine took, for the plans of later ones. `step`: of
/// this plan, not disturbed; `program`: its own, not lowered. Nothing is thrown or said where it
/// cannot be kept. REQUIRES: TellsOfLayers() (engine/forecast/run_profile.h).
void RememberRun(const Job& job, const Plan& plan, const schedule::Program& program,
                 const MeasuredStep& step);

}  // namespace strata::lua
