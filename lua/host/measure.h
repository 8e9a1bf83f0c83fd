// Measure: what the layers of a script's job take on this machine, for partition = "time". What was
// measured once is kept in the shared cache folder.
#pragma once

#include "engine/plan/costs/profile.h"
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
/// The cache, $STRATA_CACHE/profiles/DIGEST.json, has a file for each processor (or GPU), number of
/// threads and of ranks side by side, and version of LibTorch; in it the seconds of each distinct
/// layer (LayerKey()), written as soon as it is measured, and a link between two processes, which
/// MeasureIn::kChild measures. What was measured while other programs had the processor, a notice
/// says so, is measured again ten minutes later. A file that is broken, or of another
/// machine, is ignored, with a notice on standard error, and written anew; one that cannot be
/// written costs a notice, and that the next process measures again. Where time is limited, as for
/// a calibration, one process after the other measures.
Measure MeasureHere(State& state, MeasureIn where);

}  // namespace strata::lua
