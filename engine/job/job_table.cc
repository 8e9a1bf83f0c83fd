#include "engine/job/job_table.h"

#include <filesystem>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/fields/quantity.h"
#include "engine/base/text.h"
#include "engine/job/job_fields.h"
#include "engine/layers/parts.h"

namespace strata {
namespace {

// ---- ToValue(): the canonical form of each member of a job ----

template <class T>
requires std::is_constructible_v<Value, T> Value ToValue(const T& value) { return value; }

Value ToValue(const LayerSpec& layer) { return layer.ToValue(); }

Value ToValue(const Precision& precision) { return PrecisionToValue(precision); }

Value ToValue(const LayerSelector& selector) { return selector.items; }

Value ToValue(const AdaptSpec& adapt) {
  if (!adapt.is_on()) return Value();
  return Value::MakeMap({{"type", adapt.type}, {"options", adapt.options}});
}

Value ToValue(const ParameterGroup& group) {
  Value value = Value::MakeMap({{"layers", group.layers.items}, {"parameters", group.parameters}});
  if (!group.type.empty()) value.Set("type", group.type);
  if (!group.dims.empty()) value.Set("dims", group.dims);
  return value.Set("options", group.options);
}

template <class T>
Value ToValue(const std::vector<T>& items) {
  Value::List list;
  for (const T& item : items) list.push_back(ToValue(item));
  return list;
}

/// Layers are serialised uncut: cuts do not change results, so resuming and the comparison between
/// ranks ignore them.
Value ToValue(const std::vector<LayerSpec>& layers) { return ToValue<LayerSpec>(InWhole(layers)); }

Value ToValue(const OptimizerSpec& spec) {
  return Value::MakeMap(
      {{"type", spec.type}, {"options", spec.options}, {"groups", ToValue(spec.groups)}});
}

Value ToValue(const LrScheduleSpec& spec) {
  return Value::MakeMap(
      {{"type", spec.type}, {"options", spec.options}, {"function", spec.function}});
}

Value ToValue(const DataSpec& spec) {
  Value options = spec.options;
  // These options only affect how fast data is read, not its content.
  for (const char* name : {"workers", "prefetch"}) {
    if (options.is_map()) options.Erase(name);
  }
  return Value::MakeMap({{"source", spec.kind}, {"options", options}, {"function", spec.function}});
}

Value ToValue(const PartitionSpec& spec) {
  return Value::MakeMap({{"method", spec.method},
                         {"bounds", Value::IntList({spec.bounds.begin(), spec.bounds.end()})},
                         {"function", spec.function}});
}

Value ToValue(const Parallel& parallel) {
  return Value::MakeMap(
      {{"pipe", parallel.pipe}, {"data", parallel.data}, {"model", parallel.model}});
}

Value ToValue(const ScheduleSpec& spec) {
  return Value::MakeMap(
      {{"name", spec.name}, {"source", spec.source}, {"function", spec.function}});
}

Value ToValue(const Batch& batch) {
  return Value::MakeMap({{"size", batch.size},
                         {"micro_batches", batch.micro_batches},
                         {"micro_batch_size", batch.micro_batch_size}});
}

Value ToValue(const MonitorSpec& spec) {
  return Value::MakeMap({{"monitor", spec.monitor},
                         {"larger_is_better", spec.larger_is_better},
                         {"patience", spec.patience},
                         {"min_delta", spec.min_delta}});
}

Value ToValue(const Callbacks& callbacks) {
  return Value::MakeMap({{"on_step", callbacks.on_step},
                         {"on_eval", callbacks.on_eval},
                         {"on_epoch", callbacks.on_epoch}});
}

Value EveryToValue(int64_t every) { return every == kEveryEpoch ? Value("epoch") : Value(every); }

Value ToValue(const SaveSpec& save) {
  Value value =
      Value::MakeMap({{"dir", save.dir}, {"every", EveryToValue(save.every)}, {"keep", save.keep}});
  if (save.best.monitor.empty()) return value;
  value.Set("best", save.best.monitor);
  return value.Set("mode", save.best.larger_is_better ? "max" : "min");
}

Value ToValue(const WeightsSpec& spec) {
  Value value;
  value.Set("from", spec.from).Set("map", spec.map).Set("prefix", spec.prefix);
  value.Set("except", spec.except.items);
  return value.Set("strict", spec.strict ? Value(*spec.strict) : Value());
}

Value ToValue(const RecomputeSpec& spec) {
  return Value::MakeMap({{"method", static_cast<int>(spec.method)},
                         {"every", spec.every},
                         {"layers", spec.layers.items},
                         {"function", spec.function}});
}

Value ToValue(const CheckSpec& check) {
  if (check.share > 0) return check.share;
  return check.is_on() ? Value::MakeMap({{"every", check.every}}) : Value();
}

Value ToValue(const SamplesSpec& samples) {
  return Value::MakeMap({{"prompts", Value::List(samples.prompts.begin(), samples.prompts.end())},
                         {"every", samples.every},
                         {"options", samples.options}});
}

Value ToValue(const EvalSpec& eval) {
  Value value = Value::MakeMap(
      {{"every", EveryToValue(eval.every)}, {"batch", eval.batch}, {"metric", eval.metric}});
  Value::List metrics;
  for (const MetricSpec& metric : eval.metrics) {
    metrics.push_back(Value::MakeMap({{"name", metric.name}, {"function", metric.function}}));
  }
  if (!metrics.empty()) value.Set("metrics", std::move(metrics));
  if (eval.class_dim) value.Set("class_dim", *eval.class_dim);
  if (!eval.samples.prompts.empty()) value.Set("samples", ToValue(eval.samples));
  return value;
}

template <class T>
Value ToValue(const std::optional<T>& value) {
  return value ? ToValue(*value) : Value();
}

// ---- functions that read keys ----

/// Converts a key's value to the type of its member; null becomes the zero of that type.
template <class T>
T Plain(const Value& value) {
  if (value.is_null()) return T();
  if constexpr (std::is_same_v<T, bool>) {
    return value.as_bool();
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value.as_int());
  } else if constexpr (std::is_same_v<T, double>) {
    return value.as_double();
  } else if constexpr (std::is_same_v<T, FunctionRef>) {
    return value.as_function();
  } else {
    return value.as_string();
  }
}

/// The job's name; if the key is omitted, the file name of the script without its ending.
std::string ReadName(const JobKeys& keys) {
  const std::string& name = keys["name"].as_string();
  return name.empty() ? std::filesystem::path(keys.path()).stem().string() : name;
}

/// Reads `zero`. 3 is not possible: a stage needs its parameters for each of its micro-batches, so
/// they stay whole.
int ReadZero(const JobKeys& keys) {
  const auto zero = static_cast<int>(keys["zero"].as_int());
  if (zero > 2) {
    keys.Refuse(Str("zero = ", zero,
                    ": expected 0, 1 or 2. A pipeline needs its parameters for each of its ",
                    "micro-batches, so sharding parameters would cost a gather for each of them; ",
                    "zero = 1 shards the optimizer's state over the replicas, and zero = 2 ",
                    "their summed gradients, too"));
  }
  return zero;
}

/// Reads the memory limit in bytes. It must be at least 1, since 0 means no limit.
int64_t ReadMemory(const JobKeys& keys) {
  const Value& value = keys["memory"];
  if (value.is_null()) return 0;
  const double bytes = keys.Placed([&] { return ParseBytes(value, "memory"); });
  if (bytes >= 1 && bytes < 0x1p62) return static_cast<int64_t>(bytes);
  keys.Refuse(Str("memory must be at least a byte, got ", value.Describe()));
}

/// A path in the script is relative to the script's folder; a path on the command line is relative
/// to the current folder.
std::string ReadFileName(const char* key, const JobKeys& keys) {
  const std::string name = Plain<std::string>(keys[key]);
  if (name.empty() || keys.overridden(key)) return name;
  return (std::filesystem::path(keys.path()).parent_path() / name).string();
}
std::string ReadCosts(const JobKeys& keys) { return ReadFileName("costs", keys); }
std::string ReadLinks(const JobKeys& keys) { return ReadFileName("links", keys); }

/// Reads stages_per_rank; 0 stands for "auto".
int ReadStagesPerRank(const JobKeys& keys) {
  static const Field number = Field::Int("stages_per_rank", "").AtLeast(1).AtMost(32767);
  const Value& value = keys["stages_per_rank"];
  if (value == Value("auto")) return 0;
  return static_cast<int>(CanonicalizeField(number, value, keys.CallFor("the job", {})).as_int());
}

// ---- the table ----

enum class OnResume { kSame, kFree };

template <class T>
JobKey Shown(Field field, T Job::*member, OnResume on_resume = OnResume::kSame) {
  const std::string name = field.name;
  return {std::move(field), on_resume == OnResume::kFree, nullptr,
          [=](const Job& job, Value& value) { value.Set(name, ToValue(job.*member)); }};
}

/// A key that can be read without the others: by `read`, or by Plain() if that is null.
template <class T>
JobKey Bound(Field field, T Job::*member, OnResume on_resume = OnResume::kSame,
             T (*read)(const JobKeys&) = nullptr) {
  const std::string name = field.name;
  JobKey key = Shown(std::move(field), member, on_resume);
  key.read = [=](const JobKeys& keys, Job& job) {
    job.*member = read ? read(keys) : Plain<T>(keys[name.c_str()]);
  };
  return key;
}

std::vector<const FieldTable*> TablesOf(const std::vector<OptionTable>& types) {
  std::vector<const FieldTable*> tables;
  for (const OptionTable& type : types) tables.push_back(&type.fields);
  return tables;
}

/// data, which has two entries in the canonical form: training data and test data.
JobKey Data(Field field) {
  return {std::move(field), false, nullptr, [](const Job& job, Value& value) {
            value.Set("train_data", ToValue(job.train_data));
            value.Set("test_data", ToValue(job.test_data));
          }};
}

/// ema, whose value is stored in the optimizer.
JobKey Ema(Field field) {
  return {std::move(field), false, nullptr,
          [](const Job& job, Value& value) { value.Set("ema", job.optimizer.ema); }};
}

std::vector<JobKey> ModelKeys() {
  return {
      Bound(Field::String("name", "the job's name; left out: the script's").Default(""), &Job::name,
            OnResume::kFree, ReadName),
      Shown(Field::Any("layers", "the list of layers").Optional(), &Job::layers),
      Shown(Field::Table("input", {&InputFields()},
                         "dtype and shape of a sample; left out: those of the data")
                .Optional(),
            &Job::input),
      Shown(Field::Any("loss", "a loss layer, or a function(output, target) -> loss or sum, weight")
                .Optional(),
            &Job::loss),
  };
}

std::vector<JobKey> PlacementKeys() {
  return {
      Shown(Field::Any("partition",
                       "where the list of layers is cut: auto, uniform, parameters, time, memory, "
                       "type:REGEX, cuts {0, 19, 22}, also inside layers {0, 4.1, 11}, "
                       "function(layers, stages)")
                .Default("auto"),
            &Job::partition, OnResume::kFree),
      Shown(Field::Table("parallel", {&ParallelFields()},
                         "how many ranks each axis has: pipe, data, model")
                .Optional(),
            &Job::parallel, OnResume::kFree),
      Shown(Field::Any("schedule",
                       "the order of forwards and backwards: auto, a schedule's name, a CSV file "
                       "or a function")
                .Default("auto"),
            &Job::schedule, OnResume::kFree),
      Bound(Field::Any("stages_per_rank", "how many stages each rank has, or auto").Default("auto"),
            &Job::stages_per_rank, OnResume::kFree, ReadStagesPerRank),
      Bound(Field::Bool("rebalance",
                        "moves layers to other ranks while it trains, where cuts are "
                        "auto and a step gets shorter")
                .Default(true),
            &Job::rebalance, OnResume::kFree),
      Shown(
          Field::Table("batch", {&BatchFields()}, "two of size, micro_batches and micro_batch_size")
              .Optional(),
          &Job::batch, OnResume::kFree),
      Bound(Field::String("costs", "a file of what the layers take, written by plan --write_costs")
                .Optional(),
            &Job::costs, OnResume::kFree, ReadCosts),
      Bound(Field::String("links", "a file of what messages take, written by doctor --links")
                .Optional(),
            &Job::links, OnResume::kFree, ReadLinks),
  };
}

std::vector<JobKey> OptimizationKeys() {
  return {
      Shown(Field::Table("optimizer", TablesOf(OptimizerTypes()),
                         "how parameters are updated: sgd, adamw, lion, muon, ... with options")
                .Optional(),
            &Job::optimizer),
      Shown(Field::Table("lr_schedule", TablesOf(LrScheduleTypes()),
                         "how the learning rate changes: warmup, cosine, one_cycle, plateau, ..., "
                         "or a function(step) -> factor")
                .Optional(),
            &Job::lr_schedule),
      Bound(Field::Number("clip", "largest norm of the whole gradient; none = no clipping")
                .Above(0)
                .Optional(),
            &Job::clip),
      Bound(Field::Int("zero",
                       "1 = each replica keeps its share of the optimizer's state; 2 = of the "
                       "summed gradients, too")
                .AtLeast(0)
                .AtMost(3)
                .Default(0),
            &Job::zero, OnResume::kFree, ReadZero),
      Ema(Field::Number("ema", "decay of an average of the parameters, which evaluations use")
              .AtLeast(0)
              .Below(1)
              .Optional()),
      Shown(Field::Any("freeze",
                       "what does not learn: layers by index, name, type:REGEX or name:REGEX, "
                       "parameters:REGEX, {except=...}, a function(layer)")
                .Optional(),
            &Job::freeze, OnResume::kFree),
      Shown(Field::Table("adapt", TablesOf(AdaptTypes()),
                         "trains low-rank parts beside the weights of Linear layers and freezes "
                         "the rest: lora, with options")
                .Optional(),
            &Job::adapt),
      Shown(Field::Table("precision", TablesOf(PrecisionTypes()),
                         "in which numbers it computes: float32, tf32, bf16 or fp16, with options")
                .Optional(),
            &Job::precision, OnResume::kFree),
      Shown(Field::Any("recompute",
                       "layers that run forward again instead of keeping activations: true, "
                       "{every=N}, layers, a function, auto")
                .Default(false),
            &Job::recompute, OnResume::kFree),
      Bound(Field::Any("memory", "most memory of a rank's tensors: 80GB, 512MiB, or bytes")
                .Optional(),
            &Job::memory, OnResume::kFree, ReadMemory),
      Shown(Field::Any("ranks",
                       "speed and memory where ranks differ, by host or rank: "
                       "{\"slow*\", speed=0.5, memory=\"24GiB\"}; speed=measured times all first")
                .Optional(),
            &Job::ranks, OnResume::kFree),
  };
}

std::vector<JobKey> LengthKeys() {
  return {
      Data(Field::Table("data", {&DataFields()},
                        "what it trains on and is tested with; a source alone is train")
               .Optional()),
      Shown(Field::Table("eval", {&EvalFields()}, "when and how data.test is evaluated").Optional(),
            &Job::eval, OnResume::kFree),
      Shown(Field::Table("stop", {&StopFields()}, "ends when evaluations get no better").Optional(),
            &Job::stop, OnResume::kFree),
      Shown(Field::Int("steps", "optimizer steps to train").AtLeast(1).Optional(), &Job::steps,
            OnResume::kFree),
      Shown(Field::Number("epochs", "passes over data.train").Above(0).Optional(), &Job::epochs,
            OnResume::kFree),
      Bound(Field::Int("seed", "what random numbers begin with: initial values, dropout, shuffling")
                .AtLeast(0)
                // 2^53 - 1, the largest integer of which a Lua number (a double) holds all smaller
                // ones.
                .AtMost(9007199254740991)
                .Default(1234),
            &Job::seed),
      Bound(Field::Function("seed_fn", "function(layer) -> seed of its initial values").Optional(),
            &Job::seed_fn),
  };
}

std::vector<JobKey> RunKeys() {
  return {
      Shown(
          Field::Table("save", {&SaveFields()}, "where and when the training is saved").Optional(),
          &Job::save, OnResume::kFree),
      Shown(Field::String(
                "resume",
                "a save to go on from, or a folder of saves; latest = that of save.dir, best = "
                "that of save.best")
                .Optional()
                .FlagValue(kLatestSave),
            &Job::resume, OnResume::kFree),
      Shown(Field::Table("weights", {&WeightsFields()},
                         "a save, or published weights, to begin with; and how names meet")
                .Optional(),
            &Job::weights, OnResume::kFree),
      Bound(Field::Choice("device", {"cuda", "cpu"},
                          "where ranks compute; none = cuda where there is a GPU")
                .Optional(),
            &Job::device, OnResume::kFree),
      Bound(Field::Choice("transport", {"nccl", "gloo", "threads"},
                          "how ranks send tensors; none = what fits the device and the ranks")
                .Optional(),
            &Job::transport, OnResume::kFree),
      Bound(Field::Int("threads", "threads of a rank; none = the machine's cores over its ranks")
                .AtLeast(1)
                .AtMost(4096)
                .Optional(),
            &Job::threads, OnResume::kFree),
      Bound(Field::Number("timeout",
                          "seconds that ranks wait for each other's connections and messages")
                .Above(0)
                .Default(1800.0),
            &Job::timeout, OnResume::kFree),
      Bound(Field::Number(
                "hang_timeout",
                "seconds without progress until the watchdog speaks; 0 = ten, or five steps")
                .AtLeast(0)
                .Default(0.0),
            &Job::hang_timeout, OnResume::kFree),
  };
}

std::vector<JobKey> WatchKeys() {
  return {
      Bound(Field::Int("tie_check", "steps between comparisons of tied weights; 0 = never")
                .AtLeast(0)
                .Default(100),
            &Job::tie_check, OnResume::kFree),
      Shown(Field::Any("check",
                       "steps in which another rank repeats a stage and compares bits: {every=N}, "
                       "or a share of the time, 0.02")
                .Optional(),
            &Job::check, OnResume::kFree),
      Bound(Field::Bool("comm_log", "shows what messages and collectives took, at the end")
                .Default(false),
            &Job::comm_log, OnResume::kFree),
      Bound(Field::String("log", "a JSONL file with a record per step").Optional(), &Job::log,
            OnResume::kFree),
      Bound(
          Field::Choice("nonfinite", {"stop", "skip", "warn"},
                        "a step whose loss or gradients are not finite: ends the training, is left "
                        "out, or counts")
              .Default("stop"),
          &Job::nonfinite, OnResume::kFree),
      Bound(Field::Bool("losses", "shows the loss of every micro-batch").Default(false),
            &Job::losses, OnResume::kFree),
      Bound(Field::Bool("grad_norms", "logs the norm of every layer's gradient").Default(false),
            &Job::grad_norms, OnResume::kFree),
      Bound(Field::Int("histograms",
                       "steps between histograms of the gradients, which --tensorboard and the log "
                       "get; 0 = none")
                .AtLeast(0)
                .Default(0),
            &Job::histograms, OnResume::kFree),
      Shown(Field::Table("callbacks", {&CallbackFields()},
                         "functions that rank 0 calls: on_step, on_eval, on_epoch")
                .Optional(),
            &Job::callbacks, OnResume::kFree),
      Bound(Field::String("trace", "a file for the time of every action, for Perfetto").Optional(),
            &Job::trace, OnResume::kFree),
  };
}

}  // namespace

const std::vector<JobKey>& JobTable() {
  static const std::vector<JobKey> table = [] {
    std::vector<JobKey> all;
    for (const auto& part :
         {ModelKeys(), PlacementKeys(), OptimizationKeys(), LengthKeys(), RunKeys(), WatchKeys()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    for (JobKey& key : all) key.field.named_only = true;
    return all;
  }();
  return table;
}

const FieldTable& JobFields() {
  static const FieldTable fields = [] {
    FieldTable all;
    for (const JobKey& key : JobTable()) all.push_back(key.field);
    return all;
  }();
  return fields;
}

}  // namespace strata
