#include "engine/job/build_job.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/adapt.h"
#include "engine/job/class_names.h"
#include "engine/job/data_input.h"
#include "engine/job/data_source.h"
#include "engine/job/freeze.h"
#include "engine/job/job_fields.h"
#include "engine/job/job_keys.h"
#include "engine/job/job_table.h"
#include "engine/job/layer_list.h"
#include "engine/job/parameter_groups.h"
#include "engine/job/read_evaluation.h"
#include "engine/job/read_optimizer.h"
#include "engine/job/select.h"
#include "engine/job/ties.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/parts.h"

namespace strata {
namespace {

// ---- parts of a job ----

/// True if one of the cuts lies inside a layer, such as 4.1.
bool CutsInside(const Value& cuts) {
  return std::ranges::any_of(cuts.as_list(),
                             [](const Value& cut) { return cut.is_number() && !cut.is_int(); });
}

PartitionSpec ReadPartition(const JobKeys& keys, const LayerList& list) {
  const Value& value = keys["partition"];
  PartitionSpec spec;
  if (!list.cuts.empty() && !keys.overridden("partition")) {
    if (keys.given("partition")) {
      keys.Refuse("partition and strata.cut() both say where to cut; keep one of them");
    }
    spec.method = "cuts";
    spec.bounds = list.cuts;
    spec.bounds.insert(spec.bounds.begin(), 0);
    spec.bounds.push_back(static_cast<int>(list.layers.size()));
  } else if (value.is_string()) {
    spec.method = value.as_string();
  } else if (value.is_function()) {
    spec.method = "function";
    spec.function = value.as_function();
  } else {
    static const Field bounds = Field::Shape("partition", "").AtLeast(0).AtMost(1e6);
    if (!value.is_list()) {
      keys.Refuse(Str("partition expects a method's name, cuts such as {0, 19, 22} or a function; ",
                      "got ", value.Describe()));
    }
    spec.method = "cuts";
    if (CutsInside(value)) return spec;  // CutInside() fills in the bounds later
    for (int64_t bound : CanonicalizeField(bounds, value, keys.CallFor("the job", {})).as_ints()) {
      spec.bounds.push_back(static_cast<int>(bound));
    }
  }
  return spec;
}

/// Returns the content of a file in the script's folder or below it.
std::string ReadFile(const JobKeys& keys, const std::string& script, const std::string& name) {
  const std::filesystem::path asked = name;
  if (asked.is_absolute() || std::ranges::find(asked, "..") != asked.end()) {
    keys.Refuse(Str("schedule must be a file below the script's folder, not \"", name, "\""));
  }
  const std::filesystem::path path = std::filesystem::path(script).parent_path() / name;
  std::error_code error;
  std::ifstream file;
  // Only regular files are opened: opening a pipe would wait for its writer, and a device may have
  // no end.
  if (std::filesystem::is_regular_file(path, error)) file.open(path);
  if (!file.is_open()) keys.Refuse(Str("schedule: cannot read the file ", path.string()));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

ScheduleSpec ReadSchedule(const JobKeys& keys, const std::string& script) {
  const Value& value = keys["schedule"];
  ScheduleSpec spec;
  if (value.is_function()) {
    spec.name = "function";
    spec.function = value.as_function();
  } else if (!value.is_string()) {
    keys.Refuse(Str("schedule expects a schedule's name, a CSV file or a function; got ",
                    value.Describe()));
  } else if (value.as_string().ends_with(".csv")) {
    spec.name = "csv";
    spec.source = ReadFile(keys, script, value.as_string());
  } else {
    spec.name = value.as_string();
    // ScheduleSpec uses these two names for schedules from a file or a function.
    if (spec.name == "csv" || spec.name == "function") {
      keys.Refuse(Str("there is no schedule \"", spec.name,
                      "\"; a file's name ends in .csv, a function is given as it is"));
    }
  }
  return spec;
}

int OrZero(const Value& value) { return value.is_null() ? 0 : static_cast<int>(value.as_int()); }

Parallel ReadParallel(const JobKeys& keys) {
  const Value table = keys.Table("parallel", ParallelFields());
  return {OrZero(table["pipe"]), OrZero(table["data"]), OrZero(table["model"])};
}

/// True if the override gives two of the three batch sizes. They determine the third, so the
/// script's sizes are dropped.
bool IsWholeBatch(const Value&, const Value& over) {
  return std::ranges::count_if(
             over.as_map(), [](const Value::Entry& entry) { return !entry.second.is_null(); }) >= 2;
}

Batch ReadBatch(const JobKeys& keys) {
  const Value table = keys.Table("batch", BatchFields(), IsWholeBatch);
  const Batch batch = {CountOf(table["size"]), CountOf(table["micro_batches"]),
                       CountOf(table["micro_batch_size"])};
  if (table.is_null()) return batch;
  return keys.Placed([&] { return ResolveBatch(batch); });
}

/// The data sources by name ("train", "test"). A single source, without a name, is the training
/// data.
Value DataTable(const JobKeys& keys, const Value& value) {
  if (value.is_function() || (value.is_map() && value.Has("source")))
    return Value::MakeMap({{"train", value}});
  return CanonicalizeGiven(DataFields(), keys.CallFor("the job's data", value));
}

/// True if an override removes a data source: --data.test=none.
bool IsNone(const Value& over) {
  return over.is_null() || CallOf(over).positional == Value::List{"none"};
}

/// Adds the mask to the inputs in the facts: with collate = "pad" each micro-batch has, behind its
/// input, a bool mask of the real elements along dim 0.
void AddMask(const JobKeys& keys, DataSpec& spec) {
  const Value* facts = spec.options.Find("facts");
  DataFacts known = facts ? FactsOf(spec) : DataFacts{};
  if (known.inputs.size() != 1 || known.inputs[0].shape.empty()) {
    keys.Refuse(
        "collate = \"pad\" needs data in files or of functions, with one input whose dim 0 "
        "may be filled up");
  }
  known.inputs.push_back({{known.inputs[0].shape[0]}, DType::kBool});
  spec.options.Set("facts", ToValue(known));
}

/// Reads how data is loaded: the options workers, prefetch and collate, which stand beside train
/// and test and hold for both.
void ReadLoading(const JobKeys& keys, DataSpec& spec) {
  if (!HasEnd(spec)) return;
  const Value table =
      Merged(DataTable(keys, keys.script("data")), DataTable(keys, keys.override_of("data")));
  for (const char* option : {"workers", "prefetch", "collate"}) {
    if (!table[option].is_null()) spec.options.Set(option, table[option]);
  }
  if (spec.options["collate"] == Value("pad")) AddMask(keys, spec);
}

/// The spec of a sample's input if the data has exactly one input; otherwise none.
std::optional<TensorSpec> SampleOf(const DataSpec& data) {
  if (!HasEnd(data)) return std::nullopt;
  const TensorSpecs inputs = FactsOf(data).inputs;
  return inputs.size() == 1 ? std::optional(inputs[0]) : std::nullopt;
}

/// Returns the script's source data.`name` with the flags' overrides merged into it. An override
/// that names a source of its own replaces the script's; "none" gives null.
Value SourceOf(const JobKeys& keys, const char* name) {
  const Value source = DataTable(keys, keys.script("data"))[name];
  const Value table = DataTable(keys, keys.override_of("data"));
  const Value& over = table[name];
  if (table.Has(name) && IsNone(over)) return {};
  if (over.is_map() && !over.Has("source")) {
    if (!source.is_map()) keys.Refuse(Str("data.", name, " is no source that has options"));
    return Merged(source, over);
  }
  return over.is_null() ? source : over;
}

/// Reads data.`name`. If --input is given, data.test is replaced by a source that reads its file;
/// `train` is then the training data, whose samples determine the size to which images are read.
DataSpec ReadData(const JobKeys& keys, const char* name, const TensorSpec* input,
                  const ExamineData& examine, const DataSpec& train = {}) {
  Value source = SourceOf(keys, name);
  const Value given = DataTable(keys, keys.override_of("data"))["input"];
  if (std::string_view(name) == "test" && !given.is_null()) {
    const std::optional<TensorSpec> sample = input ? std::optional(*input) : SampleOf(train);
    source = ReadingInput(source.is_map() ? source : SourceOf(keys, "train"), given.as_string(),
                          keys.where(), sample ? &*sample : nullptr);
  }
  DataSpec spec = ParseDataSpec(source, input, keys.where(), examine);
  ReadLoading(keys, spec);
  if (std::string_view(name) == "test" && spec.kind == "function") {
    keys.Refuse(
        "data.test expects a source with an end, such as strata.data.digits{}; a function "
        "has none");
  }
  return spec;
}

std::optional<TensorSpec> ReadInput(const JobKeys& keys) {
  const Value table = keys.Table("input", InputFields());
  if (table.is_null()) return std::nullopt;
  return TensorSpec{table["shape"].as_ints(), ParseDType(table["dtype"].as_string())};
}

LayerSpec ReadLoss(const RawJob& raw, const JobKeys& keys) {
  const Value& value = keys["loss"];
  LayerSpec loss;
  if (raw.loss) {
    loss = *raw.loss;
  } else if (value.is_function()) {
    loss.type = "function";
    loss.where = value.as_function().where;
    loss.scripted = true;
    loss.forward = value.as_function();
  } else if (!value.is_null()) {
    keys.Refuse(
        Str("loss expects a loss such as nn.CrossEntropyLoss{} or a function(output, "
            "target); got ",
            value.Describe()));
  }
  const LayerType* type = FindLayerType(loss.type);
  if (!loss.scripted && type && !type->is_loss) {
    keys.Refuse(
        Str("loss expects a loss such as nn.CrossEntropyLoss{}; got the layer ", loss.ToString()));
  }
  return loss;
}

/// Reads steps or epochs. If neither is given, the training is one pass over the data, if the data
/// has an end.
void ReadLength(const JobKeys& keys, Job& job) {
  const bool steps_over = keys.overridden("steps"), epochs_over = keys.overridden("epochs");
  const bool steps = !keys["steps"].is_null() && !(epochs_over && !steps_over);
  const bool epochs = !keys["epochs"].is_null() && !(steps_over && !epochs_over);
  if (steps && epochs) keys.Refuse("steps and epochs both say how long to train; keep one of them");
  if (steps) job.steps = keys["steps"].as_int();
  if (epochs) job.epochs = keys["epochs"].as_double();
  if (epochs && job.train_data.kind == "function") {
    keys.Refuse("epochs needs data with an end; a function has none: give steps");
  }
  if (!steps && !epochs && HasEnd(job.train_data)) job.epochs = 1;
}

SaveSpec ReadSave(const JobKeys& keys, const EvalSpec& eval) {
  const Value table = keys.Table("save", SaveFields());
  if (table.is_null()) return {};
  SaveSpec save = {table["dir"].as_string(), EveryOf(table["every"]), table["keep"].as_int()};
  if (save.dir == "none") return {};
  const std::string best = TextOf(table["best"]);
  if (!best.empty()) save.best = ReadMonitor(keys, "save.best", best, table["mode"], eval);
  if (save.dir.empty()) keys.Refuse("save.dir expects the name of a folder; got \"\"");
  return save;
}

Callbacks ReadCallbacks(const JobKeys& keys) {
  const Value table = keys.Table("callbacks", CallbackFields());
  const auto function = [&](const char* name) {
    return table.is_null() || table[name].is_null() ? FunctionRef() : table[name].as_function();
  };
  return {function("on_step"), function("on_eval"), function("on_epoch")};
}

/// True if the override names another file of weights. The script's map, prefix, except and strict
/// are meant for the script's own file, so they are dropped.
bool IsOtherFile(const Value& script, const Value& over) {
  return script.Has("from") && over.Has("from") && script["from"] != over["from"];
}

WeightsSpec ReadWeights(const JobKeys& keys, const std::vector<LayerSpec>& layers) {
  const Value table = keys.Table("weights", WeightsFields(), IsOtherFile);
  if (table.is_null() || table["from"].as_string() == "none") return {};
  WeightsSpec weights = {.from = table["from"].as_string(),
                         .map = table["map"],
                         .prefix = table["prefix"].as_string(),
                         .except = ReadSelector(table["except"])};
  if (weights.from.empty()) keys.Refuse("weights.from expects a file or a folder; got \"\"");
  if (!table["strict"].is_null()) weights.strict = table["strict"].as_bool();
  if (table["strict"].is_null() && !weights.map.is_null()) weights.strict = true;
  const std::vector<int> excepted =
      keys.Placed([&] { return SelectLayers(weights.except, layers, "weights.except"); });
  CheckWholeTies(layers, excepted, "weights.except");
  return weights;
}

/// Reads `resume`, and checks it against `weights`: both say from what the training starts instead
/// of initial values. Saves of a job that adapts do not have the base, so such a job needs both.
void ReadStart(const JobKeys& keys, Job& job) {
  job.resume = TextOf(keys["resume"]);
  if (keys["resume"].is_string() && job.resume.empty()) {
    keys.Refuse("resume expects a save or a folder of saves; got \"\"");
  }
  const bool has_best = !job.save.best.monitor.empty();
  if (job.resume == "best" && has_best) job.resume = job.save.dir + "/best";
  // "latest" may be combined with weights: on the first start there is no save and the weights are
  // used; later the save is of the training that began with them.
  const bool names_save = !job.resume.empty() && job.resume != kLatestSave;
  if (names_save && !job.weights.from.empty() && !job.adapt.is_on()) {
    keys.Refuse(
        "resume names a save to go on from and weights begins with weights from elsewhere; keep "
        "one of them (--weights=none leaves out the script's)");
  }
  if (names_save && job.adapt.is_on() && !TextOf(job.adapt.options["from"]).empty()) {
    keys.Refuse(
        "resume and adapt.from both say with which low-rank parts it begins; keep one of them "
        "(--adapt.from=none leaves out the script's)");
  }
  if (job.resume == kLatestSave && job.save.dir.empty()) {
    keys.Refuse("resume needs the folder of saves: save = {dir=...}, or resume = \"FOLDER\"");
  }
}

RecomputeSpec ReadRecompute(const JobKeys& keys, const std::vector<LayerSpec>& layers) {
  using Method = RecomputeSpec::Method;
  const Value& value = keys["recompute"];
  if (value.is_null() || value == Value(false)) return {};
  if (value == Value(true)) return {.method = Method::kStages};
  if (value.is_function()) return {.method = Method::kFunction, .function = value.as_function()};
  if (value == Value("auto")) return {.method = Method::kAuto};
  // On the command line recompute is a text: "every:2" means {every=2}.
  const bool is_text = value.is_string() && value.as_string().starts_with("every:");
  if (value.is_map() || is_text) {
    const Value given =
        is_text ? Value::MakeMap({{"every", ParseText(nullptr, value.as_string().substr(6))}})
                : value;
    const Value table =
        CanonicalizeGiven(RecomputeFields(), keys.CallFor("the job's recompute", given));
    if (table["every"].is_null()) keys.Refuse("recompute expects {every=N}");
    return {.method = Method::kEvery, .every = static_cast<int>(table["every"].as_int())};
  }
  RecomputeSpec spec = {.method = Method::kLayers, .layers = ReadSelector(value)};
  keys.Placed([&] { return SelectLayers(spec.layers, layers, "recompute"); });
  return spec;
}

CheckSpec ReadCheck(const JobKeys& keys) {
  const Value& value = keys["check"];
  if (value.is_null()) return {};
  // On the command line a table is a text: "every:100" means {every=100}.
  const bool is_text = value.is_string() && value.as_string().starts_with("every:");
  if (value.is_map() || is_text) {
    const Value given =
        is_text ? Value::MakeMap({{"every", ParseText(nullptr, value.as_string().substr(6))}})
                : value;
    const Value table = CanonicalizeGiven(CheckFields(), keys.CallFor("the job's check", given));
    if (!table["every"].is_null()) return {.every = table["every"].as_int()};
  } else if (value.is_number() && value.as_double() > 0 && value.as_double() < 1) {
    return {.share = value.as_double()};
  }
  keys.Refuse(Str("check expects {every=N}, or a share of the time above 0 and below 1; got ",
                  value.Describe()));
}

/// Replaces the job's layers by their parts (parts.h) if the list may be cut inside a layer: if the
/// partition method goes by costs, or if a written cut lies inside a layer. In the second case it
/// also sets the bounds. A file of costs and the model axis know whole layers only: together with a
/// written cut inside a layer they are an error, otherwise the layers stay whole.
void CutInside(const JobKeys& keys, Job& job) {
  static const std::set<std::string> kByCosts = {"auto", "time", "profile", "memory"};
  const Value& written = keys["partition"];
  const bool is_inside = job.partition.method == "cuts" && job.partition.bounds.empty() &&
                         written.is_list() && CutsInside(written);
  const bool is_whole = job.parallel.model > 1 || !job.costs.empty();
  const bool is_free = kByCosts.contains(job.partition.method) && job.parallel.pipe > 1;
  if (!is_inside && (!is_free || is_whole)) return;
  if (is_whole) {
    keys.Refuse(Str("partition: a cut inside of a layer, and ",
                    job.costs.empty() ? "parallel.model above 1" : "costs, a file of whole layers",
                    ": keep one of them"));
  }
  job.layers = InParts(job.layers, [](int) { return true; });
  if (!is_inside) return;
  job.partition.bounds =
      keys.Placed([&] { return CutNames(job.layers).Positions(written, "partition"); });
}

}  // namespace

Job BuildJob(const RawJob& raw, const Value& overrides) {
  const JobKeys keys(raw, overrides);
  Job job;
  job.script = raw.script;
  for (const JobKey& key : JobTable()) {
    if (key.read) key.read(keys, job);
  }
  LayerList list = FlattenLayers(raw.layers, raw.where);
  job.partition = ReadPartition(keys, list);
  job.layers = std::move(list.layers);
  job.weights = ReadWeights(keys, job.layers);
  Freeze(keys, job);
  Adapt(keys, job);
  job.recompute = ReadRecompute(keys, job.layers);
  job.ranks = keys.Placed([&] { return ReadRanks(keys["ranks"]); });
  const auto [type, options] = keys.TypedTable("precision", PrecisionTypes(), "float32", "compute");
  job.precision =
      keys.Placed([&, &type = type, &options = options] { return ReadPrecision(type, options); });
  job.input = ReadInput(keys);
  job.loss = ReadLoss(raw, keys);
  job.parallel = ReadParallel(keys);
  job.schedule = ReadSchedule(keys, raw.script);
  job.batch = ReadBatch(keys);
  job.optimizer = ReadOptimizer(keys, job.layers);
  CheckTieOptions(job);
  job.check = ReadCheck(keys);
  if (job.check.is_on() && job.parallel.model > 1) {
    keys.Refuse("check does not repeat layers that the model axis divides: parallel.model = 1");
  }
  job.lr_schedule = ReadLrSchedule(keys);
  const TensorSpec* input = job.input ? &*job.input : nullptr;
  job.train_data = ReadData(keys, "train", input, raw.examine);
  job.test_data = ReadData(keys, "test", input, raw.examine, job.train_data);
  keys.Placed([&] { MatchClasses(job.train_data, job.test_data); });
  job.eval = ReadEval(keys, job.loss);
  job.stop = ReadStop(keys, job);
  job.save = ReadSave(keys, job.eval);
  job.callbacks = ReadCallbacks(keys);
  if (job.lr_schedule.type == "plateau") {
    const Value& options = job.lr_schedule.options;
    ReadMonitor(keys, "lr_schedule.monitor", options["monitor"].as_string(), options["mode"],
                job.eval);
  }
  CheckEpochs(keys, job);
  ReadStart(keys, job);
  ReadLength(keys, job);
  CutInside(keys, job);
  return job;
}

namespace {

/// Refuses stop, save.best, a plateau and eval.samples if the evaluations that they need are not
/// made. `name` names the job in messages.
void CheckEvaluated(const std::string& name, const Job& job) {
  const bool has_test = !job.test_data.kind.empty();
  const SamplesSpec& samples = job.eval.samples;
  if (!samples.prompts.empty() && samples.every == 0 && !has_test) {
    throw ConfigError(Str(name, ": eval.samples come behind evaluations, which need data.test: ",
                          "else say every=N, steps between two times"));
  }
  const bool plateau = job.lr_schedule.type == "plateau";
  const std::string who = !job.stop.monitor.empty() ? "stop" : plateau ? "lr_schedule plateau" : "";
  if (who.empty() && job.save.best.monitor.empty()) return;
  if (!has_test) {
    throw ConfigError(Str(name, ": ", who.empty() ? "save.best" : who,
                          " looks at evaluations, which need data.test"));
  }
  if (!who.empty() && job.eval.every == 0) {
    throw ConfigError(Str(name, ": ", who,
                          " looks at evaluations during the training: give eval = ", "{every=N}"));
  }
}

}  // namespace

void CheckTrainable(const Job& job) {
  const std::string name = Str("the job \"", job.name, "\"");
  if (job.train_data.kind.empty()) {
    throw ConfigError(Str(name, " needs data to train: data = strata.data.digits{} or another ",
                          "source, or a function(i) -> input, target"));
  }
  if (job.loss.type.empty()) {
    throw ConfigError(Str(name, " needs a loss to train: loss = nn.CrossEntropyLoss{} or another"));
  }
  if (job.steps == 0 && job.epochs == 0) {
    throw ConfigError(Str(name, " needs steps: its data is a function, which has no end"));
  }
  if (job.schedule.name == "inference") {
    throw ConfigError(
        Str(name, " has the schedule \"inference\", which has no backwards: it cannot ", "train"));
  }
  CheckEvaluated(name, job);
  ResolveBatch(job.batch);
}

}  // namespace strata
