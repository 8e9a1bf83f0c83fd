// Loading runs in three phases. First all ranks agree on the save (rank 0 decides) and compare the
// names, shapes and dtypes of its tensors with those of the job; anything that does not fit is
// refused by all ranks. Then each rank verifies the digests of the tensors that it needs, and all
// meet in a barrier. Only then does each rank read its slices into memory. So a damaged save
// changes nothing on any rank.
#include "engine/runtime/saves/beginning.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/progress_line.h"
#include "engine/base/text.h"
#include "engine/checkpoint/save_folder.h"
#include "engine/checkpoint/weights/exported.h"
#include "engine/job/data_source.h"
#include "engine/runtime/saves/base_digest.h"
#include "engine/runtime/saves/load_weights.h"
#include "engine/runtime/saves/resumable.h"
#include "engine/runtime/saves/saved_data.h"
#include "engine/runtime/saves/saved_freeze.h"
#include "engine/runtime/saves/saved_job.h"

namespace strata {
namespace {

/// Keys that jobs of earlier versions had and that could change on resume. Saves may still contain
/// them.
constexpr const char* kFormerKeys[] = {"join"};

/// Removes from layers which parameters are frozen. FreezeChange reports that separately.
Value WithoutFreeze(const Value& layers) {
  Value::List list;
  for (Value layer : layers.as_list()) {
    layer.Erase("frozen");
    layer.Erase("frozen_parameters");
    if (layer.Has("layers")) layer.Set("layers", WithoutFreeze(layer["layers"]));
    list.push_back(std::move(layer));
  }
  return list;
}

/// Reduces a job to what influences the training, for the comparison with the save. `predicts`: the
/// test data are only predicted, so they may differ.
Value Taught(Value job, bool predicts) {
  for (const std::string& key : KeysFreeOnResume()) job.Erase(key);
  for (const char* key : kFormerKeys) job.Erase(key);
  if (job["layers"].is_list()) job.Set("layers", WithoutFreeze(job["layers"]));
  if (predicts) job.Erase("test_data");
  if (job["adapt"].is_map()) {  // from which parts it began is past
    Value adapt = job["adapt"], options = adapt["options"];
    options.Erase("from");
    job.Set("adapt", adapt.Set("options", options));
  }
  return job;
}

std::string PlanText(const Value& plan) {
  std::vector<std::string> cuts;
  for (const Value& cut : plan["cuts"].as_list()) cuts.push_back(cut.ToLua());
  return Str("cuts ", Join(cuts, ","), ", ", plan["schedule"].as_string());
}

/// A note for the user if the planner chose another plan than in the save although the pipeline has
/// the same ranks; "" otherwise.
std::string PlannedAnew(const Job& job, const Value& saved, const Value& now) {
  const bool is_chosen = job.partition.method == "auto" || job.schedule.name == "auto";
  if (!is_chosen || saved.is_null() || saved["pipe"] != now["pipe"]) return "";
  if (PlanText(saved) == PlanText(now)) return "";
  return Str("planned anew: ", PlanText(now), "; the save was trained with ", PlanText(saved));
}

/// The bytes of this rank's slice.
int64_t BytesOf(const StateTensor& tensor) {
  return tensor.slice.count * DTypeSize(tensor.spec.dtype);
}

int64_t BytesOf(const std::vector<StateTensor>& tensors) {
  int64_t bytes = 0;
  for (const StateTensor& tensor : tensors) bytes += BytesOf(tensor);
  return bytes;
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

  /// Loads the save. Returns nullopt if nothing is saved yet.
  std::optional<Begun> Resume() {
    const std::string path = PathOfSave();
    if (path.empty()) return std::nullopt;
    Begun begun;
    StartReport& report = begun.report;
    const auto save = OpenSave(path);
    CheckTraining(job_, now_, *save);
    CheckBase(*save);
    change_ = ChangeOfFreeze(save->manifest().training.job, job_.layers);
    begun.began = BeganWith(save->manifest().training, change_);
    CheckNames(*save);
    Load(*save);
    report.step = save->manifest().training.step;
    report.skipped = save->manifest().training.skipped;
    report.loss_scale = save->manifest().training.loss_scale;
    report.monitors = save->manifest().training.monitors;
    report.from = save->path();
    NoteChanges(save->manifest().training.job, report.notes);
    std::ranges::move(conversions_, std::back_inserter(report.notes));
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
    return begun;
  }

 private:
  /// The path of the save, decided by rank 0 for all ranks; "" if nothing is saved yet and
  /// job.resume allows that.
  std::string PathOfSave() {
    std::string path;
    if (transport_.rank() == 0) {
      path = SaveOf(job_);
      if (!path.empty()) path = OpenSave(path)->path();
    }
    return transport_.Broadcast(path, 0);
  }

  /// Throws ConfigError unless the save's parts were trained beside the base of now.
  void CheckBase(const Checkpoint& save) const {
    const TrainingState& saved = save.manifest().training;
    if (saved.base == now_.base) return;
    const Value now = Value::FromJson(now_.job.ToJson());
    for (const char* option : {"train", "base"}) {
      const Value before = saved.job["adapt"]["options"][option],
                  after = now["adapt"]["options"][option];
      if (before == after) continue;
      throw ConfigError(Str(save.path(), ": adapt.", option, " was ", before.Describe(),
                            " and must be the same, got ", after.Describe()));
    }
    const Value& from = saved.job["weights"]["from"];
    const bool has_file = from.is_string() && !from.as_string().empty();
    throw ConfigError(
        Str(save.path(), ": its low-rank parts were trained beside other weights (digest ",
            saved.base, ", now ", now_.base, "); give the same: --weights=",
            has_file ? from.as_string() : "none, with the initial values of its seed"));
  }

  /// Adds notes about how the job differs from that of the save.
  void NoteChanges(const Value& saved, std::vector<std::string>& notes) const {
    const Value now = Value::FromJson(now_.job.ToJson());
    const bool predicts = FindOption(job_.test_data.options, "targets") == Value(false);
    const std::string differences =
        job_.trains ? DifferencesOf(Taught(saved, predicts), Taught(now, predicts))
                    : DifferencesOfOutputs(saved, now);
    if (!differences.empty()) notes.push_back("the job has changed since the save: " + differences);
    if (job_.trains) std::ranges::move(change_.Notes(), std::back_inserter(notes));
  }

  /// Checks that every tensor of this rank is in the save, and that every tensor of the save is on
  /// some rank. Exempt are moments of parameters that begin or stop learning.
  void CheckNames(const Checkpoint& save) {
    std::map<std::string, const char*> own;
    for (const StateTensor& tensor : state_) {
      if (IsTaken(job_, change_, tensor.name)) FindSaved(save, tensor.name, tensor.spec);
      own[tensor.name] = DTypeName(tensor.spec.dtype);
    }
    const Value text = Value::MakeMap({own.begin(), own.end()});
    std::set<std::string, std::less<>> known;
    std::map<std::string, std::string> dtypes;
    for (const std::string& ranks : transport_.Gather(text.ToJson())) {
      const Value all = Value::FromJson(ranks);
      for (const auto& [name, dtype] : all.as_map()) {
        known.insert(name);
        dtypes[name] = dtype.as_string();
      }
    }
    CheckPlaces(job_, save, known, change_);
    NoteConversions(save, dtypes);
  }

  /// Notes conversions of dtypes. `dtypes`: by name, of all tensors of the job.
  void NoteConversions(const Checkpoint& save, const std::map<std::string, std::string>& dtypes) {
    std::map<std::pair<DType, DType>, int64_t> counts;
    for (const SavedTensor& saved : save.manifest().tensors) {
      const auto found = dtypes.find(saved.name);
      if (found == dtypes.end()) continue;
      const DType now = ParseDType(found->second);
      if (now != saved.spec.dtype) ++counts[{saved.spec.dtype, now}];
    }
    for (const auto& [types, count] : counts) {
      const auto [from, to] = types;
      const char* const change = DTypeSize(to) > DTypeSize(from) ? "no value changes"
                                 : to == DType::kFloat16
                                     ? "the values are rounded, and those above 65,504 overflow"
                                     : "the values are rounded";
      conversions_.push_back(Str(Plural(count, "tensor"), " of the save ",
                                 count == 1 ? "becomes " : "become ", DTypeName(to), ", from ",
                                 DTypeName(from), ": ", change));
    }
  }

  void Load(const Checkpoint& save) {
    std::vector<StateTensor> tensors;
    for (const StateTensor& tensor : state_) {
      if (IsTaken(job_, change_, tensor.name)) {
        tensors.push_back(tensor);
      } else if (tensor.name.ends_with(kAverage)) {
        // The parameter was frozen, so its average is its value.
        tensors.push_back(tensor);
        tensors.back().name = ParameterOf(tensor.name);
      }
    }
    progress_.ReadData(&source_);
    ProgressLine verifying("verifying the save", BytesOf(tensors));
    std::set<const SavedTensor*> whole;  // several slices may belong to one tensor
    for (const StateTensor& tensor : tensors) {
      const SavedTensor& saved = FindSaved(save, tensor.name, tensor.spec);
      verifying.Advance(BytesOf(tensor));
      if (!whole.insert(&saved).second) continue;
      try {
        save.Verify(saved);
      } catch (const WorldError& error) {
        throw WorldError(WithNewestWholeSave(error.what(), save.path()));
      }
    }
    progress_.WaitForAll();
    transport_.Barrier();
    progress_.ReadData(&source_);
    ProgressLine reading("reading the save", BytesOf(tensors));
    for (const StateTensor& tensor : tensors) {
      LoadTensor(save, tensor);
      reading.Advance(BytesOf(tensor));
    }
    progress_.WaitForAll();
    transport_.Barrier();
  }

  const Job& job_;
  const std::string& source_;  // for reports; a watchdog may read it at any time
  const TrainingState& now_;
  const std::vector<StateTensor>& state_;
  Transport& transport_;
  Progress& progress_;
  FreezeChange change_;
  std::vector<std::string> conversions_;  // messages for the user
};

}  // namespace

Begun BeginTraining(const Job& job, const TrainingState& now, const std::vector<StateTensor>& state,
                    const std::vector<StateTensor>& base, Script& script, Transport& transport,
                    Progress& progress) {
  Begun begun;
  std::vector<std::string> notes;
  const auto load_weights = [&] {
    if (job.weights.from.empty()) return;
    begun.report = LoadWeights(job, state, script, transport, progress);
  };
  TrainingState beside = now;
  if (job.adapt.is_on()) {
    load_weights();
    const bool begins_with_parts = job.adapt.options["from"].is_string();
    const bool compares = begins_with_parts || !job.resume.empty() || !job.save.dir.empty();
    if (compares) beside.base = DigestOfBase(base, transport);
  }
  if (!job.resume.empty()) {
    if (auto resumed = Beginning(job, beside, state, transport, progress).Resume()) {
      resumed->base = beside.base;
      std::vector<std::string>& all = resumed->report.notes;
      all.insert(all.begin(), begun.report.notes.begin(), begun.report.notes.end());
      return *std::move(resumed);
    }
    notes = {Str("nothing is saved in ", job.save.dir, " yet: the training begins")};
  }
  if (job.adapt.is_on()) {
    const std::string base = LoadParts(job, state, script, transport, progress);
    const Value& from = job.adapt.options["from"];
    if (from.is_string()) {
      const bool is_other = !base.empty() && base != beside.base;  // PEFT's files do not say it
      notes.push_back(Str("begins with the low-rank parts of ", from.as_string(),
                          is_other ? ", which were trained beside other weights" : ""));
    }
  } else {
    load_weights();
  }
  begun.base = beside.base;
  begun.report.notes.insert(begun.report.notes.begin(), notes.begin(), notes.end());
  return begun;
}

}  // namespace strata
