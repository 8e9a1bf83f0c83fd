// What a training takes of weights from elsewhere (job.weights): a save's or published ones,
// through the job's map.
#pragma once

#include <functional>
#include <vector>

#include "engine/comm/transport.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/saves/training_state.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

/// Collective. Each rank reads what it needs of its own tensors; beside these it has the memory of
/// one. Nothing is loaded before every rank has found what fits. job.weights.strict says what
/// becomes of what does not: it is refused, or listed in the report and keeps its initial values.
/// Weights of which nothing fits are refused always; where the job does not train also those that
/// leave tensors with initial values, but for missing ones where strict is false. What differs
/// between such a job and that of a save is in the report.
///
/// Throws ConfigError for what does not fit, of all ranks together; WorldError for what is damaged
/// or missing, by tensor.
StartReport LoadWeights(const Job& job, const std::vector<StateTensor>& state, Script& script,
                        Transport& transport, Progress& progress);

/// Reads the averages of what LoadWeights() has taken into those of the state, "3.weight#ema".
/// False, and nothing done, where job.weights has none, as saves of trainings with `ema` have, or
/// the job keeps none. Calls `begin` first; where an average is missing that of the state stays.
/// Throws as LoadWeights().
bool LoadAverages(const Job& job, const std::vector<StateTensor>& state, Script& script,
                  Progress& progress, const std::function<void()>& begin);

}  // namespace strata
