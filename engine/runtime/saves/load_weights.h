// LoadWeights(): loads weights from elsewhere (job.weights), from a save or published ones, through
// the job's map of names.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/comm/transport.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/runtime/results.h"
#include "engine/runtime/saves/training_state.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

/// Collective. Each rank reads its own tensors, with memory for one more tensor at a time. Nothing
/// is loaded before every rank knows what fits. For what does not fit job.weights.strict decides:
/// it is refused, or listed in the report and keeps its initial values. Weights of which nothing
/// fits are always refused. If the job does not train, weights that leave tensors with initial
/// values are refused as well, except for missing ones if strict is false. The report also lists
/// how the outputs of this job may differ from those of the job that made the save.
///
/// Throws ConfigError with everything that does not fit on any rank; WorldError, naming the tensor,
/// for what is damaged or missing.
StartReport LoadWeights(const Job& job, const std::vector<StateTensor>& state, Script& script,
                        Transport& transport, Progress& progress);

/// Collective. Loads the low-rank parts, what is trained besides them, and buffers, from
/// job.adapt's `from`: a folder of PEFT, or a save of a job with `adapt`. Does nothing if that is
/// not given. Returns the digest of the base beside which the parts were trained, if it is a save,
/// else "". Throws ConfigError if a tensor is missing, has another shape or has no place, or if
/// rank or alpha are others than the job's; WorldError as LoadWeights() does.
std::string LoadParts(const Job& job, const std::vector<StateTensor>& state, Script& script,
                      Transport& transport, Progress& progress);

/// Loads the averages (ema) that belong to the weights of LoadWeights() into the averages of
/// `state`, "3.weight#ema". Returns false, having done nothing, if job.weights has no averages
/// (saves of trainings with `ema` have them) or the job keeps none. Calls `begin` first. An average
/// that is missing keeps its value. Throws as LoadWeights() does.
bool LoadAverages(const Job& job, const std::vector<StateTensor>& state, Script& script,
                  Progress& progress, const std::function<void()>& begin);

}  // namespace strata
