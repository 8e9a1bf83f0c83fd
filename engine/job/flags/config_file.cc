#include "engine/job/flags/config_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/text.h"
#include "engine/job/flags/overrides.h"
#include "engine/job/job_fields.h"

namespace strata {
namespace {

constexpr const char* kScheduler = "scheduler";
constexpr const char* kReduce = "communication_data_type";

constexpr RefusedKey kRefused[] = {
    {"steps_per_print", "use the flag --print_every"},
    {"pipeline", "use the keys parallel, partition and schedule"},
    {"activation_checkpointing", "use the key recompute"},
    {"prescale_gradients", "gradients are divided once, by the global weight"},
    {"gradient_predivide_factor", "gradients are divided once, by the global weight"},
    {"sparse_gradients", "gradients are dense"},
    {"wall_clock_breakdown", "use the key trace"},
    {"flops_profiler", "use strata plan"},
    {"comms_logger", "use the flag --comm_log"},
    {"tensorboard", "use the key log"},
    {"wandb", "use the key log"},
    {"csv_monitor", "use the key log"},
    {"checkpoint", "use the keys save and resume"},
    {"curriculum_learning", "it is not here"},
    {"data_efficiency", "it is not here"},
    {"compression_training", "it is not here"},
    {"elasticity", "it is not here"},
    {"autotuning", "it is not here"},
};

/// Translates the content of one file into job overrides.
class ConfigFile {
 public:
  ConfigFile(const Value& config, std::string name, const Value& flags)
      : config_(config), name_(std::move(name)), flags_(flags) {}

  Value Overrides() {
    for (const auto& [key, value] : config_.as_map()) {
      if (key != kScheduler && key != kReduce && !ReadDeepSpeed(key, value)) Set(key, value);
    }
    ReadPrecision();
    // The scheduler is read after the loop, so that its lr takes precedence over the optimizer's in
    // any order of the keys.
    if (const Value* scheduler = config_.Find(kScheduler)) ReadScheduler(*scheduler);
    ReadBatch();
    return overrides_;
  }

 private:
  [[noreturn]] void Refuse(const std::string& key, const std::string& why) const {
    throw ConfigError(Str(name_, ": ", key, ": ", why));
  }

  /// Sets the keys of a table one by one. A table as a whole would be checked only when the job is
  /// built, and the error would then not name the file.
  void Set(const std::string& path, const Value& value) {
    const Field* field = FindJobField(path);
    if (!field || field->kind != FieldKind::kTable || !value.is_map()) {
      SetOverride(overrides_, path, value, name_, "");
      return;
    }
    const Call call = CallOf(value);
    if (!call.positional.empty()) SetOverride(overrides_, path, call.positional, name_, "");
    for (const auto& [key, member] : call.named) Set(Str(path, ".", key), member);
  }

  /// Checks one of DeepSpeed's tables and returns its members, with defaults.
  Value Table(const std::string& key, const Value& value, const FieldTable& fields) const {
    if (!value.is_map()) Refuse(key, "expected an object, got " + value.Describe());
    return Canonicalize(fields,
                        {.subject = Str(name_, ": ", key), .noun = "key", .named = value.as_map()});
  }

  bool ReadDeepSpeed(const std::string& key, const Value& value) {
    const auto refused = std::ranges::find(kRefused, key, &RefusedKey::key);
    if (refused != std::end(kRefused)) Refuse(key, refused->why);
    const bool is_typed = value.is_map() && (value.Has("type") || value.Has("params"));
    if (key == "train_batch_size" || key == "train_micro_batch_size_per_gpu" ||
        key == "gradient_accumulation_steps") {
      Size(key, value);
    } else if (key == "optimizer" && is_typed) {
      ReadOptimizer(value);
    } else if (key == "gradient_clipping") {
      ReadClipping(key, value);
    } else if (key == "zero_optimization") {
      static const FieldTable fields = {Field::Int("stage", "").AtLeast(0).AtMost(3).Default(0)};
      Set("zero", Table(key, value, fields)["stage"]);
    } else if (key == "fp16" || key == "bf16") {
      ReadHalf(key, value);
    } else if (key == "amp") {
      const Value* enabled = value.is_map() ? value.Find("enabled") : nullptr;
      const bool is_off = value.is_map() && (!enabled || *enabled == Value(false));
      if (!is_off) Refuse(key, "apex is not here; use fp16 or bf16");
    } else {
      return false;
    }
    return true;
  }

  void ReadHalf(const std::string& key, const Value& value) {
    static const Field enabled = Field::Bool("enabled", "").Default(false);
    static const FieldTable bf16 = {enabled};
    static const FieldTable fp16 = {
        enabled,
        Field::Bool("auto_cast", "").Default(false),
        Field::Number("loss_scale", "").AtLeast(0).Default(0.0),
        Field::Int("initial_scale_power", "").AtLeast(0).AtMost(127).Default(16),
        Field::Int("loss_scale_window", "").AtLeast(1).Default(1000),
        Field::Int("hysteresis", "").AtLeast(1).Default(2),
        Field::Bool("consecutive_hysteresis", "").Default(false),
        Field::Number("min_loss_scale", "").Above(0).Default(1.0)};
    const Value given = Table(key, value, key == "fp16" ? fp16 : bf16);
    if (!given["enabled"].as_bool()) {
      turns_half_off_ = true;
      return;
    }
    Set("precision", Value::MakeMap({{"1", key}}));
    if (key == "bf16") return;
    if (given["consecutive_hysteresis"].as_bool()) {
      Refuse("fp16.consecutive_hysteresis", "overflows are forgiven again after growth only");
    }
    if (given["loss_scale"].as_double() > 0) {
      Set("precision.scale", given["loss_scale"]);
      return;
    }
    Set("precision.initial_scale",
        std::ldexp(1.0, static_cast<int>(given["initial_scale_power"].as_int())));
    Set("precision.growth_interval", given["loss_scale_window"]);
    Set("precision.hysteresis", given["hysteresis"]);
    Set("precision.min_scale", given["min_loss_scale"]);
  }

  /// Sets the type of precision, after all keys of the file have been read.
  void ReadPrecision() {
    if (turns_half_off_ && TypeOfFile().is_null()) Set("precision", "float32");
    if (const Value* reduce = config_.Find(kReduce)) ReadReduce(*reduce);
  }

  const Value& TypeOfFile() const { return overrides_["precision"]["1"]; }

  /// Sets precision.reduce without a check: whether the option exists depends on the job's type of
  /// precision, which is known only when the job is built.
  void ReadReduce(const Value& value) {
    static const Field field = Field::Choice(kReduce, {"fp32", "fp16", "bf16"}, "");
    const std::string type =
        CanonicalizeField(field, value, {.subject = name_, .noun = "key"}).as_string();
    const bool is_half = TypeOfFile() == Value("fp16") || TypeOfFile() == Value("bf16");
    if (type != "fp32") {
      overrides_.SetPath("precision.reduce", type);
    } else if (is_half) {
      // Other types always exchange float32 and have no such option.
      overrides_.SetPath("precision.reduce", "float32");
    }
  }

  int64_t Size(const std::string& key, const Value& value) const {
    static const Field size = Field::Int("", "").AtLeast(1).AtMost(INT32_MAX);
    Field field = size;
    field.name = key;
    return CanonicalizeField(field, value, {.subject = name_, .noun = "key"}).as_int();
  }

  void ReadClipping(const std::string& key, const Value& value) {
    Field field = Field::Number(key, "").AtLeast(0);
    const Value norm = CanonicalizeField(field, value, {.subject = name_, .noun = "key"});
    Set("clip", norm.as_double() > 0 ? norm : "none");
  }

  /// Returns the "type" of a table in lower case, and its "params".
  std::pair<std::string, Value> Typed(const std::string& key, const Value& value) const {
    static const FieldTable fields = {Field::String("type", ""),
                                      Field::Any("params", "").Optional()};
    const Value table = Table(key, value, fields);
    const Value params = table["params"].is_null() ? Value::MakeMap() : table["params"];
    if (!params.is_map()) Refuse(key + ".params", "expected an object, got " + params.Describe());
    return {Lower(table["type"].as_string()), params};
  }

  void ReadOptimizer(const Value& value) {
    auto [type, params] = Typed("optimizer", value);
    const std::string key = "optimizer.params";
    if (type == "adam" || type == "adamw") {
      // DeepSpeed's Adam decays weights as AdamW does, unless adam_w_mode is false. The default
      // decay is 0.
      const Value* mode = params.Find("adam_w_mode");
      if (mode && !mode->is_bool()) Refuse(key + ".adam_w_mode", "expected true or false");
      if (mode && type == "adam" && !mode->as_bool()) type = "plain adam";
      if (const Value* torch = params.Find("torch_adam"); torch && *torch != Value(false)) {
        Refuse(key + ".torch_adam", "there is one Adam here; leave it out");
      }
      params.Erase("adam_w_mode");
      params.Erase("torch_adam");
      if (!params.Has("weight_decay")) params.Set("weight_decay", 0.0);
      type = type == "plain adam" ? "adam" : "adamw";
    } else if (type != "sgd") {
      Refuse("optimizer.type",
             Str("there is no ", Value(type).ToJson(), "; it is one of Adam, AdamW, SGD"));
    }
    Set("optimizer", Merged(Value::MakeMap({{"1", Value(type)}}), params));
  }

  void ReadScheduler(const Value& value) {
    const auto [type, params] = Typed(kScheduler, value);
    static const FieldTable common = {
        Field::Int("warmup_num_steps", "").AtLeast(0).Default(1000),
        Field::Choice("warmup_type", {"linear", "log"}, "").Default("log"),
    };
    static const Field total = Field::Int("total_num_steps", "").AtLeast(1);
    static const Field least = Field::Number("warmup_min_lr", "").AtLeast(0).Default(0.0);
    static const Field most = Field::Number("warmup_max_lr", "").AtLeast(0).Default(1e-3);
    static const Field ratio = Field::Number("warmup_min_ratio", "").AtLeast(0).Default(0.0);
    static const Field final = Field::Number("cos_min_ratio", "").AtLeast(0).Default(1e-4);
    const auto read = [&, &params = params](FieldTable fields) {
      fields.insert(fields.end(), common.begin(), common.end());
      return Table("scheduler.params", params, fields);
    };
    Value schedule = Value::MakeMap();
    if (type == "warmuplr") {
      const Value given = read({least, most});
      const int64_t steps = Warmup(given, "warmup_min_lr");
      schedule.Set("1", steps > 0 ? "warmup" : "constant");
      if (steps > 0) schedule.Set("steps", steps);
    } else if (type == "warmupdecaylr") {
      schedule = Decay("linear", read({total, least, most}), "warmup_min_lr");
      schedule.Set("final", 0.0);
    } else if (type == "warmupcosinelr") {
      const Value given = read({total, ratio, final});
      schedule = Decay("cosine", given, "warmup_min_ratio");
      schedule.Set("final", given["cos_min_ratio"]);
    } else {
      Refuse("scheduler.type",
             Str("there is no ", Value(type).ToJson(), "; it is one of WarmupLR, ",
                 "WarmupDecayLR, WarmupCosineLR, or use the key lr_schedule"));
    }
    Set("lr_schedule", schedule);
  }

  /// The number of warmup steps, in which the lr rises linearly from 0 to the optimizer's lr.
  int64_t Warmup(const Value& given, const char* least) {
    const int64_t steps = given["warmup_num_steps"].as_int();
    if (steps > 0 && given["warmup_type"] != Value("linear")) {
      Refuse("scheduler.params.warmup_type",
             "\"log\", DeepSpeed's default, is not here; use \"linear\"");
    }
    if (given[least] != Value(0.0)) {
      Refuse(Str("scheduler.params.", least), "the rise begins at 0 here");
    }
    if (given.Has("warmup_max_lr")) Set("optimizer.lr", given["warmup_max_lr"]);
    return steps;
  }

  Value Decay(const char* type, const Value& given, const char* least) {
    const int64_t warmup = Warmup(given, least);
    const int64_t steps = given["total_num_steps"].as_int() - warmup;
    if (steps < 1) Refuse("scheduler.params.total_num_steps", "not more than warmup_num_steps");
    return Value::MakeMap({{"1", type}, {"steps", steps}, {"warmup", warmup}});
  }

  /// The size that the file gives for a key; 0 if it does not.
  int64_t SizeOf(const char* key) const {
    const Value* value = config_.Find(key);
    return value ? Size(key, *value) : 0;
  }

  int64_t DataDegree() const {
    for (const Value* keys : {&flags_, static_cast<const Value*>(&overrides_)}) {
      const Value& data = (*keys)["parallel"]["data"];
      if (data.is_null()) continue;
      const Field& field = *FindField(ParallelFields(), "data");
      return CanonicalizeField(field, data, {.subject = name_, .noun = "key"}).as_int();
    }
    return 0;
  }

  void ReadBatch() {
    const int64_t total = SizeOf("train_batch_size");
    const int64_t micro = SizeOf("train_micro_batch_size_per_gpu");
    const int64_t count = SizeOf("gradient_accumulation_steps");
    if (micro > 0) Set("batch.micro_batch_size", micro);
    if (count > 0) Set("batch.micro_batches", count);
    if (total > 0) {
      ReadTotal(total, micro * count);
    } else if (micro > 0 && count == 0) {
      Set("batch.micro_batches", 1);
    }
    if (total > 0 && micro == 0 && count == 0) Set("batch.micro_batches", 1);
  }

  /// Sets batch.size from the total over all replicas. `replica` is the batch of one replica if the
  /// file gives it, else 0.
  void ReadTotal(int64_t total, int64_t replica) {
    int64_t data = DataDegree();
    if (data == 0 && replica > 0 && total % replica == 0) {
      data = total / replica;
      Set("parallel.data", data);
    }
    if (data == 0) {
      Refuse("train_batch_size",
             "is over all replicas, and nothing says how many there are; say it: --data=N");
    }
    if (total % data != 0) {
      Refuse("train_batch_size", Str(total, " is not divisible by ", Plural(data, "replica")));
    }
    if (replica > 0 && total / data != replica) {
      Refuse("train_batch_size",
             Str(total, " is not train_micro_batch_size_per_gpu * gradient_accumulation_steps * ",
                 "data = ", replica, " * ", data));
    }
    Set("batch.size", total / data);
  }

  const Value& config_;
  std::string name_;
  const Value& flags_;
  Value overrides_ = Value::MakeMap();
  /// True if the file has a table fp16 or bf16 that is not enabled.
  bool turns_half_off_ = false;
};

}  // namespace

std::span<const RefusedKey> RefusedKeys() { return kRefused; }

Value ConfigOverrides(const std::string& text, const std::string& name, const Value& flags) {
  Value config;
  try {
    config = Value::FromJson(text);
  } catch (const ConfigError& error) {
    throw ConfigError(Str(name, ": ", error.what()));
  }
  if (!config.is_map()) {
    throw ConfigError(Str(name, ": expected an object of job keys, got ", config.Describe()));
  }
  return ConfigFile(config, name, flags).Overrides();
}

std::string ReadFlagFile(const char* flag, const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error) ||
      // Such as /dev/zero, which has no end.
      std::filesystem::is_character_file(path, error)) {
    throw ConfigError(
        Str("--", flag, "=", path, ": expected a file, this is a folder or a device"));
  }
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) throw ConfigError(Str("--", flag, "=", path, ": ", std::strerror(errno)));
  return text;
}

Value ReadConfigFile(const std::string& path, const Value& flags) {
  return ConfigOverrides(ReadFlagFile("config", path), path, flags);
}

}  // namespace strata
