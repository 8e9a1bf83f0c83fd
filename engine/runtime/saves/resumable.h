// What a save must be so that a job can go on from it. Torch-free: the launcher asks before the
// ranks start, and the ranks ask again with the tensors that they have.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/manifest.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/runtime/saves/saved_freeze.h"

namespace strata {

/// What a save says of the job, its data and its plan; nothing of a step.
TrainingState TrainingOf(const Job& job, const Plan& plan);

/// The save, or the folder of saves, that job.resume means; "" where that is the last save and
/// nothing is saved yet. Throws WorldError for saves of which none is the last.
std::string SaveOf(const Job& job);

/// Throws ConfigError for published weights, which are no save; WorldError as Checkpoint::Open()
/// does, with the newest save that is whole.
std::unique_ptr<Checkpoint> OpenSave(const std::string& path);

/// Throws ConfigError unless the save is of the same classes and, where the job trains, of the same
/// seed, kind of optimizer and samples of a step. `now`: of TrainingOf().
void CheckTraining(const Job& job, const TrainingState& now, const Checkpoint& save);

/// The entry of a tensor that the job has. Throws ConfigError unless the save has it, of the same
/// shape. Dtypes may differ where both are floating: the values are converted.
const SavedTensor& FindSaved(const Checkpoint& save, const std::string& name,
                             const TensorSpec& spec);

/// Whether the job takes this tensor of its own from the save: all but moments that begin at zero,
/// and those that only training steps would use where the job does not train.
bool IsTaken(const Job& job, const FreezeChange& change, std::string_view name);

/// Throws ConfigError for a tensor of the save that the job has not, unless it is a moment that
/// `change` drops, or that only training steps would use. `known`: all that the job has.
void CheckPlaces(const Job& job, const Checkpoint& save,
                 const std::set<std::string, std::less<>>& known, const FreezeChange& change);

/// All of these checks of the save that job.resume means, with the tensors that the job's layers
/// declare. A save that is missing or damaged is no matter of this: the ranks tell of it.
void CheckResume(const Job& job, const Plan& plan);

}  // namespace strata
