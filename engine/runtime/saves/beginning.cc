// First what does not fit is refused by all ranks, then each rank reads its own tensors.
#include "engine/runtime/saves/beginning.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <type_traits>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/tensor_name.h"
#include "engine/checkpoint/saves/save_folder.h"
#include "engine/runtime/saves/saved_data.h"
#include "engine/runtime/saves/saved_job.h"
#include "engine/runtime/saves/take_weights.h"
#include "engine/spec/job/data/data_source.h"

namespace strata {
namespace {

/// Keys that jobs of earlier versions had, and that were free on resume: saves still name them.
constexpr const char* kFormerKeys[] = {"join"};

/// What the job has that teaches something. Predictions are made of any data.
Value Taught(Value job, bool predicts) {
  for (const std::string& key : KeysFreeOnResume()) job.Erase(key);
  for (const char* key : kFormerKeys) job.Erase(key);
  if (predicts) job.Erase("test_data");
  return job;
}

std::string PlanText(const Value& plan) {
  std::vector<std::string> cuts;
  for (const Value& cut : plan["cuts"].as_list()) cuts.push_back(cut.ToLua());
  return Str("cuts ", Join(cuts, ","), ", ", plan["schedule"].as_string());
}

/// What is said where the same ranks chose another plan for the save; "" where nothing is.
std::string PlannedAnew(const Job& job, const Value& saved, const Value& now) {
  const bool is_chosen = job.partition.method == "auto" || job.schedule.name == "auto";
  if (!is_chosen || saved.is_null() || saved["pipe"] != now["pipe"]) return "";
  if (PlanText(saved) == PlanText(now)) return "";
  return Str("planned anew: ", PlanText(now), "; the save was trained with ", PlanText(saved));
}

class Beginning {
 public:
  Beginning(const Job& job, const TrainingState& now, const std::vector<StateTensor>& state,
            Transport& transport, Progress& progress)
      : job_(job),
        source_(job.resume),
        now_(now),
        state_(state),
        transport_(transport),
        progress_(progress) {}

  /// None where nothing is saved yet.
  std::optional<StartReport> Resume() {
    const std::string path = PathOfSave();
    if (path.empty()) return std::nullopt;
    StartReport report;
    const auto save = Open(path);
    CheckTraining(*save);
    CheckNames(*save);
    Load(*save, state_);
    report.step = save->manifest().training.step;
    report.skipped = save->manifest().training.skipped;
    report.loss_scale = save->manifest().training.loss_scale;
    report.monitors = save->manifest().training.monitors;
    report.from = save->path();
    const Value now = Value::FromJson(now_.job.ToJson());
    const bool predicts = FindOption(job_.test_data.options, "targets") == Value(false);
    const std::string differences =
        DifferencesOf(Taught(save->manifest().training.job, predicts), Taught(now, predicts));
    if (!differences.empty()) report.notes = {"the job has changed since the save: " + differences};
    const bool is_best = path.starts_with(BestFolder(job_.save.dir) + "/");
    if (job_.resume == kLatestSave && is_best) {
      report.notes.push_back("this is the best save: there is no other yet");
    }
    const int64_t samples = save->manifest().training.samples;
    if (job_.trains && samples > 0 && now_.samples > 0 && samples != now_.samples) {
      report.notes.push_back(Str("data.train has ", Plural(now_.samples, "sample"),
                                 ", when it was saved ", samples,
                                 ": epochs begin at other steps, in another order"));
    }
    std::ranges::move(ChangesOfData(save->manifest().training.data, now_.data),
                      std::back_inserter(report.notes));
    const std::string planned = PlannedAnew(job_, save->manifest().training.plan, now_.plan);
    if (!planned.empty()) report.notes.push_back(planned);
    return report;
  }

 private:
  /// Rank 0 decides for all: "" where nothing was saved yet and that is as it may be.
  std::string PathOfSave() {
    std::string path;
    if (transport_.rank() == 0) {
      path = job_.resume == kLatestSave ? LatestIn(job_.save.dir) : job_.resume;
      if (!path.empty()) path = Open(path)->path();
    }
    return transport_.Broadcast(path, 0);
  }

  /// What is gone on from where job.save.dir is the folder; "" where nothing was saved yet.
  std::string LatestIn(const std::string& folder) const {
    const std::string last = NewestIn(folder);
    return last.empty() ? NewestIn(BestFolder(folder)) : last;
  }

  /// What is gone on from in a folder of saves; "" where it has none.
  std::string NewestIn(const std::string& folder) const {
    return NamingWholeSave(folder, [&]() -> std::string {
      if (ReadLatest(folder)) return folder;
      const std::vector<std::string> saves = ListSaves(folder);
      if (saves.empty()) return "";
      // A training's first save is there before `latest` is: its writer may have died in between.
      const std::string only = Str(folder, "/", saves.front());
      if (saves.size() == 1 && ReadManifest(only).sequence == 0) return only;
      throw WorldError(
          Str("there are saves in ", folder, ", but no file \"latest\" that names one"));
    });
  }

  template <class Work>
  std::invoke_result_t<Work> NamingWholeSave(const std::string& save, const Work& work) const {
    try {
      return work();
    } catch (const WorldError& error) {
      throw WorldError(WithNewestWholeSave(error.what(), save));
    }
  }

  std::unique_ptr<Checkpoint> Open(const std::string& path) const {
    auto save = NamingWholeSave(path, [&] { return Checkpoint::Open(path); });
    if (save->is_plain_file()) {
      throw ConfigError(Str(path, " is a file of tensors, no save to go on from; for its weights ",
                            "alone: --weights=", path));
    }
    return save;
  }

  void CheckTraining(const Checkpoint& save) const {
    const TrainingState& saved = save.manifest().training;
    const auto refuse = [&](const std::string& what) {
      throw ConfigError(Str(save.path(), ": ", what));
    };
    if (saved.seed != now_.seed) {
      refuse(Str("it was trained with the seed ", saved.seed, ", this job has ", now_.seed,
                 "; go on with --seed=", saved.seed));
    }
    if (saved.optimizer != now_.optimizer) {
      refuse(Str("its optimizer is ", saved.optimizer, ", this job's is ", now_.optimizer,
                 "; for its weights alone: --weights=", save.path()));
    }
    CheckClasses(saved.data, now_.data, save.path());
    if (job_.trains) CheckPosition(save);
  }

  void CheckPosition(const Checkpoint& save) const {
    const TrainingState& saved = save.manifest().training;
    const bool same_micro_batches = saved.micro_batches == now_.micro_batches;
    const bool same_samples =
        saved.micro_batches * saved.micro_batch_size == now_.micro_batches * now_.micro_batch_size;
    const bool counts_micro_batches = job_.train_data.kind == "function";
    if (counts_micro_batches ? same_micro_batches : same_samples) return;
    throw ConfigError(
        Str(save.path(), ": its steps have ", saved.micro_batches, " micro-batches of ",
            saved.micro_batch_size, " over all replicas, this job's have ", now_.micro_batches,
            " of ", now_.micro_batch_size, ": its position in the data would be another; change ",
            "--micro_batches or the data degree; for its weights alone: --weights=", save.path()));
  }

  /// This rank has only tensors that were saved, and all ranks together have all of those.
  void CheckNames(const Checkpoint& save) {
    Value::List names;
    for (const StateTensor& tensor : state_) {
      FindSaved(save, tensor);
      names.push_back(tensor.name);
    }
    const std::vector<std::string> all = Union(names);
    const std::set<std::string_view> known(all.begin(), all.end());
    for (const SavedTensor& saved : save.manifest().tensors) {
      if (known.contains(saved.name)) continue;
      throw ConfigError(Str(save.path(), ": tensor ", QuotedName(saved.name), " (",
                            saved.spec.ToString(), ") has no place in this job",
                            WhyNoMoment(saved.name),
                            "; to take what has: --weights=", save.path()));
    }
  }

  void Load(const Checkpoint& save, const std::vector<StateTensor>& tensors) {
    progress_.ReadData(&source_);
    std::set<const SavedTensor*> whole;  // several slices may be of one tensor
    for (const StateTensor& tensor : tensors) {
      const SavedTensor& saved = FindSaved(save, tensor);
      if (whole.insert(&saved).second) NamingWholeSave(save.path(), [&] { save.Verify(saved); });
    }
    progress_.WaitForAll();
    transport_.Barrier();
    progress_.ReadData(&source_);
    for (const StateTensor& tensor : tensors) LoadTensor(save, tensor);
    progress_.WaitForAll();
    transport_.Barrier();
  }

  /// Of the names of all ranks, each once, in the order of ranks.
  std::vector<std::string> Union(const Value::List& own) {
    std::vector<std::string> names;
    std::set<std::string> known;
    for (const std::string& text : transport_.Gather(Value(own).ToJson())) {
      const Value list = Value::FromJson(text);
      for (const Value& name : list.as_list()) {
        if (known.insert(name.as_string()).second) names.push_back(name.as_string());
      }
    }
    return names;
  }

  const Job& job_;
  const std::string& source_;  // for reports; a watchdog may read it at any time
  const TrainingState& now_;
  const std::vector<StateTensor>& state_;
  Transport& transport_;
  Progress& progress_;
};

}  // namespace

StartReport BeginTraining(const Job& job, const TrainingState& now,
                          const std::vector<StateTensor>& state, Script& script,
                          Transport& transport, Progress& progress) {
  std::vector<std::string> notes;
  if (!job.resume.empty()) {
    if (auto resumed = Beginning(job, now, state, transport, progress).Resume()) {
      return *std::move(resumed);
    }
    notes = {Str("nothing is saved in ", job.save.dir, " yet: the training begins")};
  }
  StartReport begun;
  if (!job.weights.from.empty()) begun = TakeWeights(job, state, script, transport, progress);
  begun.notes.insert(begun.notes.begin(), notes.begin(), notes.end());
  return begun;
}

}  // namespace strata
