// Job: what a script asks for, complete and checked, as plain data. script -> Job -> Plan ->
// Program. A Job knows nothing of ranks; MakePlan() (engine/plan/plan.h) places it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/spec/layer_spec.h"
#include "engine/spec/tensor_spec.h"

namespace strata {

/// Degrees of the grid; 0 = left out, derived from the world size (data = world/(pipe*model)).
struct Parallel {
  int pipe = 0;
  int data = 0;
  int model = 0;
};

/// Sizes in samples, per replica; 0 = left out. Two of three suffice: size = micro_batches *
/// micro_batch_size. ResolveBatch() fills the third.
struct Batch {
  int64_t size = 0;
  int64_t micro_batches = 0;
  int64_t micro_batch_size = 0;
};

/// The batch with all three sizes. Throws ConfigError when fewer than two are given, or when three
/// contradict each other.
Batch ResolveBatch(const Batch& batch);

/// Layers chosen by index, by name or path, or by "type:REGEX"; see SelectLayers() (select.h).
struct LayerSelector {
  std::vector<Value> items;  ///< integers and strings
};

/// Optimizer options for some layers or parameters; the first group that matches holds.
struct ParameterGroup {
  LayerSelector layers;
  std::string parameters;  ///< regex on the name in saves ("bias|ln_f.weight"); "" = all
  Value options;           ///< map: overrides of the optimizer's options (lr, weight_decay, ...)
  std::string dims = {};   ///< how many dims the parameter has: "<2", ">=2", "==1"; "" = any
};

/// `type` is "sgd", "adam" or "adamw"; `options` holds every field of its table.
struct OptimizerSpec {
  std::string type = "sgd";
  Value options;
  std::vector<ParameterGroup> groups;
};

/// `type` is "constant", "warmup", "linear", "cosine", "step" or "function". Gives a factor of the
/// optimizer's lr for every step, counted from 0: LrFactor() (lr_schedule.h).
struct LrScheduleSpec {
  std::string type = "constant";
  Value options;
  FunctionRef function;  ///< function(step) -> factor
};

/// Where samples come from. `kind`: "" (none), "digits", "cifar10", "text", "images", "tokens" or
/// "function" (function(i) -> input, target; i = global number of the micro-batch).
struct DataSpec {
  std::string kind;
  Value options;  ///< map: every field of the source's table (data_source.h)
  FunctionRef function;
  std::string where;
};

/// How the list is cut. `method` is "uniform", "parameters", "time", "memory", "type:REGEX", "cuts"
/// or "function".
struct PartitionSpec {
  std::string method = "parameters";
  std::vector<int> bounds;  ///< "cuts": {0, 19, 22}, from the key or from strata.cut() marks
  FunctionRef function;     ///< "function": function(layers, stages) -> bounds
};

/// `name` is a generator's, "csv" (`source` is the text) or "function".
struct ScheduleSpec {
  std::string name = "1f1b";
  std::string source;
  FunctionRef function;
};

/// Which layers keep no activations from forward to backward, but are computed again before it. A
/// segment is what is computed again at a time; of each the input is kept.
struct RecomputeSpec {
  enum class Method {
    kNone,
    kStages,    ///< every stage is a segment
    kEvery,     ///< segments of `every` layers, counted from each stage's first
    kLayers,    ///< each of `layers` is a segment
    kFunction,  ///< each layer for which function(layer) is true, layer = {index, type, name, ...}
    kAuto,      ///< what costs the least time and keeps the memory limit
  };
  Method method = Method::kNone;
  int every = 0;
  LayerSelector layers = {};
  FunctionRef function = {};
};

struct EvalSpec {
  int64_t every = 0;   ///< steps between evaluations of data.test; 0 = only at the end
  int64_t batch = 0;   ///< samples per micro-batch; 0 = the training micro-batch size
  std::string metric;  ///< "accuracy" (default for class losses), "none"
};

/// Where and when a training is saved.
struct SaveSpec {
  std::string dir;    ///< the folder of saves; "" = nothing is saved
  int64_t every = 0;  ///< steps between two saves; 0 = only at the end
  int64_t keep = 2;   ///< saves that stay; 0 = all
};

/// As `resume`: the newest save in save.dir; where there is none yet, the training begins.
inline constexpr const char* kLatestSave = "latest";

/// See docs/design.md section 1 for every key.
struct Job {
  std::string script;  ///< the script's path as given; "" for a job typed at the prompt
  std::string name;
  std::vector<LayerSpec> layers;    ///< flattened; a layer's index is its place here
  std::optional<TensorSpec> input;  ///< ONE sample, without the batch dim; unset = from the data
  LayerSpec loss;                   ///< a loss layer, or scripted: function(output, target)
  PartitionSpec partition;
  Parallel parallel;
  ScheduleSpec schedule;
  int stages_per_rank = 1;
  Batch batch;
  OptimizerSpec optimizer;
  LrScheduleSpec lr_schedule;
  double clip = 0;  ///< largest global gradient norm; 0 = no clipping
  int zero = 0;     ///< 1: the optimizer's state is sharded over the replicas (ZeRO-1)
  LayerSelector freeze;
  RecomputeSpec recompute;
  bool join = false;   ///< weight gradients of neighbouring micro-batches may be one product
  int64_t memory = 0;  ///< the most bytes of tensors that a rank may have; 0 = no limit
  std::string costs;   ///< a file of measured costs (engine/plan/profile.h); "" = none
  DataSpec train_data;
  DataSpec test_data;
  EvalSpec eval;
  int64_t steps = 0;  ///< 0 = left out
  double epochs = 0;  ///< 0 = left out
  int64_t seed = 1234;
  SaveSpec save;
  std::string resume;   ///< a save, a folder of saves or kLatestSave; "" = begins anew
  std::string weights;  ///< a save or a safetensors file, weights by layer name; "" = none
  FunctionRef seed_fn;  ///< function(layer) -> seed of the layer's initial values
  std::string device;   ///< "", "cuda", "cpu"; "" = cuda where there is one, else cpu with a notice
  std::string transport;      ///< "", "nccl", "gloo", "threads"; "" = derived
  int threads = 0;            ///< per rank; 0 = the machine's cores over its ranks
  double timeout = 1800;      ///< seconds, communicators
  double hang_timeout = 120;  ///< seconds without progress until the watchdog speaks
  int64_t tie_check = 100;    ///< steps between two comparisons of tied parameters; 0 = never
  bool comm_log = false;      ///< what collectives took, at the end
  std::string log;            ///< JSONL file; "" = none
  std::string trace;          ///< Chrome's trace format, with every action's time; "" = none
  /// "stop", "skip" or "warn": what becomes of a step whose loss or gradients are not finite.
  std::string nonfinite = "stop";
  bool losses = false;  ///< print and return the loss of every micro-batch

  /// The canonical form: every key with its value, functions by place and digest. Equal jobs give
  /// equal values on every rank; FirstDifference() names where two differ.
  Value ToValue() const;
};

/// The keys that may change between a save and the training that goes on from it: they say where
/// and how long a job trains, not what it learns.
std::vector<std::string> KeysFreeOnResume();

}  // namespace strata
