// Loads weights on all ranks together; maps of names and shapes are in engine/checkpoint/weights.
// Each rank looks up its own tensors in the weights. The results (missing, unfit, used, excepted)
// are gathered, so that all ranks decide and report the same. Then each rank verifies the digests
// of what it needs, all meet in a barrier, and each reads its slices.
#include "engine/runtime/saves/load_weights.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/base/progress_line.h"
#include "engine/base/text.h"
#include "engine/checkpoint/weights/exported.h"
#include "engine/checkpoint/weights/low_rank_files.h"
#include "engine/checkpoint/weights/published_config.h"
#include "engine/checkpoint/weights/taking.h"
#include "engine/comm/specs.h"
#include "engine/job/select.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/parts.h"
#include "engine/runtime/saves/saved_data.h"
#include "engine/runtime/saves/saved_job.h"

namespace strata {
namespace {

/// The prefixes of the tensors of layers that job.weights.except selects: "head.".
std::vector<std::string> ExceptedPaths(const Job& job) {
  std::vector<std::string> paths;
  for (const int index : SelectLayers(job.weights.except, job.layers, "weights.except")) {
    paths.push_back(LayerPath(job.layers[static_cast<size_t>(index)], index) + ".");
  }
  return paths;
}

/// Combines what all ranks found, in the order of ranks.
Taken OfAllRanks(const Taken& own, Transport& transport) {
  Taken all;
  for (const std::string& text : transport.Gather(own.ToJson())) all.Add(Taken::FromJson(text));
  return all;
}

void CheckTaken(const Job& job, const MappedWeights& weights, const Taken& taken,
                const std::vector<std::string>& troubles) {
  const std::string& path = weights.source().path();
  const bool refuses = job.weights.strict.value_or(!taken.unfit.empty());
  if (!refuses || troubles.empty()) return;
  throw ConfigError(Str(path, " does not fit the job \"", job.name, "\":\n", Join(troubles, "\n"),
                        "\nstrict=false (--weights.strict=false) goes on without"));
}

/// Throws ConfigError if the job, which does not train, would compute with initial values, except
/// for missing tensors if strict is false.
void CheckTrained(const Job& job, const std::string& path, const Taken& taken) {
  const bool refuses_missing = !taken.missing.empty() && job.weights.strict != false;
  if (!refuses_missing && taken.excepted.empty()) return;
  std::string text = Str(path, " leaves tensors of the job \"", job.name,
                         "\" with initial values, and it does not train:");
  if (refuses_missing) {
    text += Str("\n", Listed(Str("not in ", path), taken.missing),
                "\nstrict=false (--weights.strict=false) goes on without");
  }
  if (!taken.excepted.empty()) {
    text += Str("\n", Listed("left out by weights.except", taken.excepted),
                "\nfor what a training made of them: --weights=SAVE");
  }
  throw ConfigError(text);
}

/// Reads the slice of the tensor that this rank has.
void Load(const MappedWeights& weights, const MappedTensor& mapped, const StateTensor& tensor) {
  const at::NoGradGuard no_grad;
  if (tensor.packed) {
    const at::Tensor dense = EmptyTensors({tensor.spec}, at::kCPU)[0];
    weights.Read(mapped, tensor.slice, dense.mutable_data_ptr());
    tensor.packed->Pack(dense);
    return;
  }
  if (tensor.memory.is_cpu() && tensor.slice.is_box()) {
    return weights.Read(mapped, tensor.slice, tensor.memory.mutable_data_ptr());
  }
  const Slice box = Slice::Box(tensor.slice.offset, tensor.slice.shape);
  const at::Tensor whole = EmptyTensors({{{box.count}, tensor.spec.dtype}}, at::kCPU)[0];
  weights.Read(mapped, box, whole.mutable_data_ptr());
  tensor.memory.copy_(whole.narrow(0, tensor.slice.begin, tensor.slice.count));
}

/// Collective. Verifies the tensors that this rank needs, and once all ranks have done so, reads
/// this rank's slices. `from`: the path that the user gave.
void ReadFound(const MappedWeights& weights, const std::vector<MappedTensor>& found,
               const std::vector<StateTensor>& state, const std::string& from, Transport& transport,
               Progress& progress) {
  progress.ReadData(&from);
  std::map<std::string_view, const MappedTensor*> by_name;
  int64_t bytes = 0;
  for (const MappedTensor& tensor : found) bytes += tensor.spec.bytes();
  ProgressLine verifying("verifying weights", bytes);
  for (const MappedTensor& tensor : found) {
    by_name[tensor.name] = &tensor;
    for (const MappedTensor::Piece& piece : tensor.pieces) weights.source().Verify(*piece.source);
    verifying.Advance(tensor.spec.bytes());
  }
  weights.CheckCopies(found);
  progress.WaitForAll();
  transport.Barrier();
  progress.ReadData(&from);
  ProgressLine reading("reading weights", bytes);
  for (const StateTensor& tensor : state) {
    const auto mapped = by_name.find(tensor.name);
    if (mapped == by_name.end() || tensor.kind == TensorKind::kMoment) continue;
    Load(weights, *mapped->second, tensor);
    reading.Advance(tensor.slice.count * DTypeSize(tensor.spec.dtype));
  }
  progress.WaitForAll();
  transport.Barrier();
}

/// True for A and B of a low-rank part, which weights do not have. Layers of the script may call
/// parameters of their own so; these belong to the base.
bool IsPart(const Job& job, const StateTensor& tensor) {
  return job.adapt.is_on() && tensor.kind == TensorKind::kParameter && IsPartName(tensor.name) &&
         !job.adapt.IsBase(tensor.name);
}

bool IsExcepted(const std::vector<std::string>& excepted, std::string_view name) {
  return std::ranges::any_of(excepted,
                             [&](const std::string& path) { return name.starts_with(path); });
}

/// Refuses a save of low-rank parts as the weights of a job.
void CheckIsWhole(const Checkpoint& source) {
  if (source.manifest().training.base.empty()) return;
  throw ConfigError(Str(source.path(),
                        " holds the low-rank parts of a job with adapt and no other weights: give "
                        "the weights beside which they were trained, and --resume=",
                        source.path(), " or --adapt.from=", source.path()));
}

WeightMap MapOf(const Job& job, Script& script) {
  return WeightMap::From(job.weights.map, [&](const Value::List& arguments) {
    return script.Call(job.weights.map.as_function(), arguments);
  });
}

}  // namespace

StartReport LoadWeights(const Job& job, const std::vector<StateTensor>& state, Script& script,
                        Transport& transport, Progress& progress) {
  const auto source = Checkpoint::Open(job.weights.from);
  CheckIsWhole(*source);
  const MappedWeights weights(*source, MapOf(job, script), job.weights.prefix);

  const std::vector<std::string> excepted = ExceptedPaths(job);
  std::vector<WantedTensor> wanted, left_out;  // a tensor may be several slices of the state
  std::set<std::string_view> names;
  const std::set<std::string> may_miss = TensorsThatMayMiss(job.layers);
  for (const StateTensor& tensor : state) {
    if (IsPart(job, tensor)) continue;
    if (tensor.kind == TensorKind::kMoment || !names.insert(tensor.name).second) continue;
    const bool is_excepted = IsExcepted(excepted, tensor.name);
    (is_excepted ? left_out : wanted)
        .push_back({tensor.name, tensor.spec, may_miss.contains(tensor.name)});
  }
  std::vector<MappedTensor> found, unwanted;
  Taken own = Take(weights, wanted, found), except;
  except.used = Take(weights, left_out, unwanted).used;
  for (const WantedTensor& tensor : left_out) except.excepted.push_back(tensor.name);
  own.Add(except);

  const Taken taken = OfAllRanks(own, transport);
  StartReport report = {.from = source->path(), .notes = TroublesWith(weights, taken)};
  CheckTaken(job, weights, taken, report.notes);
  if (transport.AllReduceSum({static_cast<double>(found.size())})[0] == 0) {
    RefuseAll(weights, taken);
  }
  if (!job.trains) CheckTrained(job, source->path(), taken);
  if (!taken.excepted.empty()) {
    report.notes.push_back(
        Listed("left out by weights.except, so with their initial values", taken.excepted));
  }

  const Value &before = source->manifest().training.data, after = SavedData(job.train_data);
  const bool learns = job.trains && !std::ranges::all_of(job.layers, &LayerSpec::frozen);
  if (!learns) CheckClasses(before, after, source->path());  // a job that learns may learn others
  std::ranges::move(ChangesOfData(before, after), std::back_inserter(report.notes));
  const Value& trained = source->manifest().training.job;
  if (!job.trains && !trained.is_null()) {
    const std::string differences =
        DifferencesOfOutputs(trained, Value::FromJson(job.ToValue().ToJson()));
    if (!differences.empty()) {
      report.notes.push_back("the save was trained by another job: " + differences);
    }
  }
  std::ranges::move(ConfigNotes(weights, InWhole(job.layers)), std::back_inserter(report.notes));

  ReadFound(weights, found, state, job.weights.from, transport, progress);
  return report;
}

namespace {

/// Throws ConfigError unless the options of the file are those of the job.
void CheckOptions(const Job& job, const std::string& from, const LowRankOptions& options) {
  const Value& own = job.adapt.options;
  const bool fits =
      own["rank"].as_int() == options.rank && own["alpha"].as_double() == options.alpha;
  if (fits) return;
  throw ConfigError(Str(from, ": its parts have rank ", options.rank, " and alpha ", options.alpha,
                        "; adapt has rank ", own["rank"].as_int(), " and alpha ",
                        own["alpha"].as_double()));
}

}  // namespace

std::string LoadParts(const Job& job, const std::vector<StateTensor>& state, Script& script,
                      Transport& transport, Progress& progress) {
  const Value& from = job.adapt.options["from"];
  if (from.is_null()) return "";
  const std::string& path = from.as_string();
  const bool is_peft = IsPeftFolder(path);
  const auto source = Checkpoint::Open(is_peft ? PeftTensors(path) : path);
  CheckOptions(job, path, is_peft ? ReadPeftConfig(path) : LowRankOptionsOf(*source));
  const MappedWeights weights(*source, is_peft ? PeftMap(MapOf(job, script)) : WeightMap());
  std::vector<WantedTensor> wanted;
  std::set<std::string_view> names;
  for (const StateTensor& tensor : state) {
    if (tensor.kind == TensorKind::kMoment || job.adapt.IsBase(tensor.name)) continue;
    const bool is_buffer = tensor.kind == TensorKind::kBuffer;  // PEFT does not write them
    if (names.insert(tensor.name).second) wanted.push_back({tensor.name, tensor.spec, is_buffer});
  }
  std::vector<MappedTensor> found;
  const Taken taken = OfAllRanks(Take(weights, wanted, found), transport);
  const std::vector<std::string> troubles = TroublesWith(weights, taken);
  if (!troubles.empty()) {
    throw ConfigError(Str(path, " does not fit the job's adapt:\n", Join(troubles, "\n")));
  }
  ReadFound(weights, found, state, path, transport, progress);
  return source->manifest().training.base;
}

bool LoadAverages(const Job& job, const std::vector<StateTensor>& state, Script& script,
                  Progress& progress, const std::function<void()>& begin) {
  if (job.weights.from.empty() || job.optimizer.ema == 0) return false;
  const auto source = Checkpoint::Open(job.weights.from);
  const auto is_average = [](const auto& tensor) {
    return tensor.kind == TensorKind::kMoment && tensor.name.ends_with(kAverage);
  };
  if (!HasAverages(*source)) return false;
  begin();
  const MappedWeights weights(*source, MapOf(job, script), job.weights.prefix);
  const std::vector<std::string> excepted = ExceptedPaths(job);
  std::set<const SavedTensor*> whole;  // several slices may belong to one tensor
  progress.ReadData(&job.weights.from);
  for (const StateTensor& tensor : state) {
    if (!is_average(tensor)) continue;
    const std::string name = tensor.name.substr(0, tensor.name.size() - kAverage.size());
    auto lookup = weights.Find({name, tensor.spec});
    if (lookup.kind != MappedWeights::Lookup::Kind::kFound || IsExcepted(excepted, name)) continue;
    if (!MapAverage(*source, lookup.tensor)) continue;
    for (const MappedTensor::Piece& piece : lookup.tensor.pieces) {
      if (whole.insert(piece.source).second) source->Verify(*piece.source);
    }
    Load(weights, lookup.tensor, tensor);
  }
  progress.Compute();
  return true;
}

}  // namespace strata
