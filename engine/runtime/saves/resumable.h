// Checks whether a job can resume from a save. Torch-free: the launcher checks before the ranks
// start, and the ranks check again with their actual tensors.
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

/// What a save records of the job, its data and its plan. The fields of a step are left empty.
TrainingState TrainingOf(const Job& job, const Plan& plan);

/// The path that job.resume names: a save or a folder of saves. "" if job.resume asks for the
/// latest save and nothing is saved yet. Throws WorldError if there are saves but no record of
/// which is the latest.
std::string SaveOf(const Job& job);

/// Opens a save. Throws ConfigError for published weights, which are no save; WorldError as
/// Checkpoint::Open() does, with the newest save that is whole.
std::unique_ptr<Checkpoint> OpenSave(const std::string& path);

/// Throws ConfigError unless both or none have `adapt`, the save was trained on the same classes
/// and, if the job trains, with
/// the same seed, type of optimizer and samples per step. `now`: from TrainingOf().
void CheckTraining(const Job& job, const TrainingState& now, const Checkpoint& save);

/// Finds the saved tensor for a tensor of the job. Throws ConfigError if the save does not have it
/// or has it with another shape. Dtypes may differ if both are floating: values are converted.
const SavedTensor& FindSaved(const Checkpoint& save, const std::string& name,
                             const TensorSpec& spec);

/// True if the job loads its tensor `name` from the save. It loads all but the base of `adapt`,
/// moments that begin at zero and, if it does not train, moments that only training steps use.
bool IsTaken(const Job& job, const FreezeChange& change, std::string_view name);

/// Throws ConfigError if the save has a tensor that the job does not have, except for moments that
/// `change` drops and moments that only training steps use. `known`: the names of all tensors of
/// the job.
void CheckPlaces(const Job& job, const Checkpoint& save,
                 const std::set<std::string, std::less<>>& known, const FreezeChange& change);

/// Makes all these checks for the save that job.resume names, with the tensors that the job's
/// layers declare. Ignores a save that is missing or damaged: the ranks report it.
void CheckResume(const Job& job, const Plan& plan);

}  // namespace strata
