// BeginTraining(): loads what a training starts from, if not from initial values: a save to resume
// (job.resume), or weights from elsewhere (job.weights).
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoint/manifest.h"
#include "engine/comm/transport.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/runtime/results.h"
#include "engine/runtime/saves/training_state.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

/// What a training started from.
struct Begun {
  StartReport report = {};
  /// For parameters that began to learn later: the steps that were done then. Taken from the save
  /// and corrected for a change of `freeze`.
  BeganSteps began = {};
  std::string base = {};  ///< TrainingState::base
};

/// Collective. `now`: what a save of this training at step 0 would record. `state`: all tensors of
/// the training on this rank; they receive the loaded values. `base`: for a job with `adapt`, those
/// of its base for which this rank speaks. `job` must outlive `progress`.
///
/// Nothing is loaded before every rank has verified each of its tensors. Resuming loads the whole
/// state, whatever the parallel degrees of the save and of now. It requires the same seed, the same
/// type of optimizer and the same number of samples per step, because the position in the data is
/// counted in steps. Values are converted to the job's dtypes. Moments of parameters that were
/// frozen in the save and learn now stay zero, but their averages (ema) become the parameters'
/// values. Weights are loaded by LoadWeights(). A job with `adapt` loads its base by it also when
/// it resumes; the save has only what learns, and its digest of the base must be that of now.
///
/// Throws ConfigError for tensors that do not fit and WorldError for damaged or missing ones; both
/// name the tensor, the latter also the newest save that is whole.
Begun BeginTraining(const Job& job, const TrainingState& now, const std::vector<StateTensor>& state,
                    const std::vector<StateTensor>& base, Script& script, Transport& transport,
                    Progress& progress);

}  // namespace strata
