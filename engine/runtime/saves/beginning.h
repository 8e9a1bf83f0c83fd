// What a training begins with when it is not initial values: a save that it goes on from
// (job.resume), or weights from elsewhere (job.weights).
#pragma once

#include <vector>

#include "engine/checkpoint/manifest.h"
#include "engine/comm/transport.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/saves/training_state.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

/// What a training begins with, if not with initial values.
struct Begun {
  StartReport report = {};
  BeganSteps began = {};  ///< of the save, with what a change of `freeze` makes of it
};

/// Collective. `now`: what a save of this training at step 0 would say. `state`: everything that
/// this rank has. The job must outlive `progress`.
///
/// Nothing is loaded before every rank has found each of its tensors whole. Resuming takes the
/// whole state, on any grid, and asks for the same seed, kind of optimizer and samples of a step,
/// since the position in the data is counted in steps. Values become those of the job's dtypes.
/// Moments of parameters that were frozen in the save and learn now stay as they are, zero; but
/// averages (ema) are the values. Weights are taken by LoadWeights().
///
/// Throws ConfigError for what does not fit, by tensor; WorldError for what is damaged or missing,
/// by tensor, with the newest save that is whole.
Begun BeginTraining(const Job& job, const TrainingState& now, const std::vector<StateTensor>& state,
                    Script& script, Transport& transport, Progress& progress);

}  // namespace strata
