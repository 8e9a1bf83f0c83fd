// The checks compare two lists of named tensors: those that the save's manifest lists, and those
// that the job declares (in the launcher, DeclaredTensors()) or has (on the ranks, StateOf()).
#include "engine/runtime/saves/resumable.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/digest.h"
#include "engine/checkpoint/files/tensor_name.h"
#include "engine/checkpoint/save_folder.h"
#include "engine/checkpoint/weights/convert_elements.h"
#include "engine/checkpoint/weights/exported.h"
#include "engine/job/data_source.h"
#include "engine/job/parameter_groups.h"
#include "engine/layers/layer_types.h"
#include "engine/plan/plan_text.h"
#include "engine/runtime/saves/saved_data.h"

namespace strata {
namespace {

/// The save in `folder` from which to resume: the folder itself if it has a file `latest`, else its
/// only save; "" if it has none.
std::string NewestIn(const std::string& folder) {
  if (ReadLatest(folder)) return folder;
  const std::vector<std::string> saves = ListSaves(folder);
  if (saves.empty()) return "";
  // The first save exists before `latest` does. Its writer may have died in between.
  const std::string only = Str(folder, "/", saves.front());
  if (saves.size() == 1 && ReadManifest(only).sequence == 0) return only;
  throw WorldError(Str("there are saves in ", folder, ", but no file \"latest\" that names one"));
}

std::string NewestWholeIn(const std::string& folder) {
  try {
    return NewestIn(folder);
  } catch (const WorldError& error) {
    throw WorldError(WithNewestWholeSave(error.what(), folder));
  }
}

/// Explains why the save or the job has a moment that the other has not.
std::string WhyNoMoment(std::string_view name) {
  if (ParameterOf(name).empty()) return "";
  if (name.ends_with(kAverage)) return ": ema is another than in the save";
  return ": the optimizer's options are others than in the save";
}

/// True if the name is that of a moment that only training steps use. Averages are used by
/// evaluations as well.
bool IsOfSteps(std::string_view name) {
  return !ParameterOf(name).empty() && !name.ends_with(kAverage);
}

void CheckPosition(const Job& job, const TrainingState& now, const Checkpoint& save) {
  const TrainingState& saved = save.manifest().training;
  const bool same_micro_batches = saved.micro_batches == now.micro_batches;
  const bool same_samples =
      saved.micro_batches * saved.micro_batch_size == now.micro_batches * now.micro_batch_size;
  const bool counts_micro_batches = job.train_data.kind == "function";
  if (counts_micro_batches ? same_micro_batches : same_samples) return;
  throw ConfigError(
      Str(save.path(), ": its steps have ", saved.micro_batches, " micro-batches of ",
          saved.micro_batch_size, " over all replicas, this job's have ", now.micro_batches, " of ",
          now.micro_batch_size, ": its position in the data would be another; change ",
          "--micro_batches or the data degree; for its weights alone: --weights=", save.path()));
}

struct DeclaredTensor {
  std::string name;
  TensorSpec spec;
};

/// The tensors that the optimizer keeps for a parameter; must agree with StateOf().
std::vector<DeclaredTensor> MomentsOf(const Job& job, const NamedParameter& place) {
  const int group = FindParameterGroup(job.optimizer, job.layers, place.layer, place.spec.name);
  const OptionTable& type = FindOptimizerType(GroupType(job.optimizer, group));
  std::vector<DeclaredTensor> moments;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    moments.push_back({Str(place.name, "#", name), {shape, place.spec.dtype}});
  };
  const std::vector<int64_t>& shape = place.spec.shape;
  for (const std::string& name : type.moments(GroupOptions(job.optimizer, group))) add(name, shape);
  if (job.optimizer.ema > 0) add("ema", shape);
  if (type.name != "adafactor") return moments;
  const auto reduced = [&](size_t from_end) {
    std::vector<int64_t> means = shape;
    means[means.size() - from_end] = 1;
    return means;
  };
  if (shape.size() < 2) {
    add("variance", shape);
  } else {
    add("row_var", reduced(1));
    add("col_var", reduced(2));
  }
  return moments;
}

/// All tensors that a save of the job has, whatever its plan.
std::vector<DeclaredTensor> DeclaredTensors(const Job& job) {
  std::vector<DeclaredTensor> tensors;
  for (size_t i = 0; i < job.layers.size(); ++i) {
    const LayerSpec& layer = job.layers[i];
    const auto index = static_cast<int>(i);
    for (const NamedParameter& place : NamedParametersOf(job.layers, index)) {
      tensors.push_back({place.name, {place.spec.shape, place.spec.dtype}});
      if (layer.IsFrozen(place.spec.name)) continue;
      std::ranges::move(MomentsOf(job, place), std::back_inserter(tensors));
    }
    for (const ParameterSpec& buffer : ParametersOf(layer)) {
      if (!buffer.buffer) continue;
      tensors.push_back(
          {Str(LayerPath(layer, index), ".", buffer.name), {buffer.shape, buffer.dtype}});
    }
  }
  return tensors;
}

void CheckSave(const Job& job, const Plan& plan, const Checkpoint& save) {
  CheckTraining(job, TrainingOf(job, plan), save);
  const FreezeChange change = ChangeOfFreeze(save.manifest().training.job, job.layers);
  std::set<std::string, std::less<>> known;
  for (const DeclaredTensor& tensor : DeclaredTensors(job)) {
    if (IsTaken(job, change, tensor.name)) FindSaved(save, tensor.name, tensor.spec);
    known.insert(tensor.name);
  }
  CheckPlaces(job, save, known, change);
}

}  // namespace

TrainingState TrainingOf(const Job& job, const Plan& plan) {
  TrainingState training;
  training.micro_batches = plan.batch.micro_batches * std::max(1, plan.topology.Size(kDataAxis));
  training.micro_batch_size = plan.batch.micro_batch_size;
  if (HasEnd(job.train_data)) training.samples = FactsOf(job.train_data).samples;
  training.data = SavedData(job.train_data);
  training.seed = job.seed;
  training.optimizer = job.optimizer.type;
  training.plan.Set("pipe", plan.pipe()).Set("schedule", plan.schedule);
  training.plan.Set("cuts", CutNamesOf(plan).Numbers(plan.bounds));
  training.job_name = job.name;
  training.job = job.ToValue();
  training.job_digest = Digest(training.job.ToJson());
  return training;
}

std::string SaveOf(const Job& job) {
  if (job.resume != kLatestSave) return job.resume;
  const std::string last = NewestWholeIn(job.save.dir);
  return last.empty() ? NewestWholeIn(BestFolder(job.save.dir)) : last;
}

std::unique_ptr<Checkpoint> OpenSave(const std::string& path) {
  std::unique_ptr<Checkpoint> save;
  try {
    save = Checkpoint::Open(path);
  } catch (const WorldError& error) {
    throw WorldError(WithNewestWholeSave(error.what(), path));
  }
  if (!save->is_plain_file()) return save;
  throw ConfigError(Str(path, " is a file of tensors, no save to go on from; for its weights ",
                        "alone: --weights=", path));
}

void CheckTraining(const Job& job, const TrainingState& now, const Checkpoint& save) {
  const TrainingState& saved = save.manifest().training;
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(Str(save.path(), ": ", what));
  };
  if (saved.base.empty() && job.adapt.is_on()) {
    refuse(Str("it is of a training without adapt and has no low-rank parts; to begin with its ",
               "weights: --weights=", save.path()));
  }
  if (!saved.base.empty() && !job.adapt.is_on()) {
    refuse(
        "it holds the low-rank parts of a job with adapt and no other weights; this job has no "
        "adapt (strata export --merge=WEIGHTS adds them to the weights)");
  }
  CheckClasses(saved.data, now.data, save.path());
  if (!job.trains) return;
  if (saved.seed != now.seed) {
    refuse(Str("it was trained with the seed ", saved.seed, ", this job has ", now.seed,
               "; go on with --seed=", saved.seed));
  }
  if (saved.optimizer != now.optimizer) {
    refuse(Str("its optimizer is ", saved.optimizer, ", this job's is ", now.optimizer,
               "; for its weights alone: --weights=", save.path()));
  }
  CheckPosition(job, now, save);
}

const SavedTensor& FindSaved(const Checkpoint& save, const std::string& name,
                             const TensorSpec& spec) {
  const SavedTensor* saved = save.manifest().Find(name);
  if (!saved) {
    throw ConfigError(Str(save.path(), " has no tensor ", QuotedName(name), " (", spec.ToString(),
                          ")", WhyNoMoment(name)));
  }
  if (saved->spec.shape != spec.shape || !CanConvert(saved->spec.dtype, spec.dtype)) {
    throw ConfigError(Str(save.path(), ": tensor ", QuotedName(name), " is ",
                          saved->spec.ToString(), ", this job's is ", spec.ToString()));
  }
  return *saved;
}

bool IsTaken(const Job& job, const FreezeChange& change, std::string_view name) {
  return !change.Begins(name) && !job.adapt.IsBase(std::string(name)) &&
         (job.trains || !IsOfSteps(name));
}

void CheckPlaces(const Job& job, const Checkpoint& save,
                 const std::set<std::string, std::less<>>& known, const FreezeChange& change) {
  for (const SavedTensor& saved : save.manifest().tensors) {
    const bool is_dropped = job.trains ? change.Stops(saved.name) : IsOfSteps(saved.name);
    if (is_dropped || known.contains(saved.name)) continue;
    throw ConfigError(Str(save.path(), ": tensor ", QuotedName(saved.name), " (",
                          saved.spec.ToString(), ") has no place in this job",
                          WhyNoMoment(saved.name), "; to take what has: --weights=", save.path()));
  }
}

void CheckResume(const Job& job, const Plan& plan) {
  if (job.resume.empty()) return;
  try {
    const std::string path = SaveOf(job);
    if (!path.empty()) CheckSave(job, plan, *OpenSave(path));
  } catch (const WorldError&) {  // all ranks find the same, and report which save is whole
  }
}

}  // namespace strata
