// Job: a script's job, complete and checked, as plain data. The way is script -> Job -> Plan ->
// Program. A Job does not say which rank does what; MakePlan() (engine/plan/plan.h) decides that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/base/value.h"
#include "engine/job/precision.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// The degrees of the grid. 0 = left out: derived from the world size (data = world/(pipe*model)).
struct Parallel {
  int pipe = 0;
  int data = 0;
  int model = 0;
};

/// The batch of one replica; 0 = left out. size = micro_batches * micro_batch_size, so two of the
/// three are enough. ResolveBatch() fills in the third. Sizes are in samples.
struct Batch {
  int64_t size = 0;
  int64_t micro_batches = 0;
  int64_t micro_batch_size = 0;
};

/// The batch with all three sizes. Throws ConfigError when fewer than two are given, or when three
/// contradict each other.
Batch ResolveBatch(const Batch& batch);

/// Layers chosen by index, by name or path, by "type:REGEX" or "name:REGEX"; see SelectLayers()
/// (select.h).
struct LayerSelector {
  std::vector<Value> items;  ///< integers and strings
};

/// Optimizer options for some layers or parameters. A parameter has the options of the first group
/// that matches it.
struct ParameterGroup {
  LayerSelector layers;
  std::string parameters;  ///< regex on the name in saves ("bias|ln_f.weight"); "" = all
  Value options;           ///< map: overrides of the optimizer's options (lr, weight_decay, ...)
  std::string dims = {};   ///< how many dims the parameter has: "<2", ">=2", "==1"; "" = any
  /// Another optimizer than the others have, with every field of its table; "" = theirs.
  std::string type = {};
};

/// `type` is one of OptimizerTypes() (job_fields.h); `options` holds every field of its table.
struct OptimizerSpec {
  std::string type = "sgd";
  Value options;
  std::vector<ParameterGroup> groups;
  double ema = 0;  ///< decay of the average of each parameter; 0 = no average is kept
};

/// `type` is one of LrScheduleTypes() (job_fields.h), or "function". The schedule gives, for every
/// step from 0 on, the factor of the optimizer's lr: LrFactor() (lr_schedule.h).
struct LrScheduleSpec {
  std::string type = "constant";
  Value options;
  FunctionRef function;  ///< function(step) -> factor
};

/// A data source. `kind` is "" (none), a name of DataSourceTypes() or DataStepTypes()
/// (data_source.h), or "function" (function(i) -> input, target, where i is the global number of
/// the micro-batch).
struct DataSpec {
  std::string kind;
  Value options;  ///< map: every field of the source's table (data_source.h)
  FunctionRef function;
  std::string where;
  std::vector<std::string> notes = {};  ///< of who opened it, for people: Dataset::notes()
  /// Of data.train: DataFacts that its options leave out.
  std::vector<std::string> class_names = {};
  std::string encoding = {};
};

/// How the list of layers is cut into stages. `method` is "auto", "uniform", "parameters", "time",
/// "memory", "type:REGEX", "cuts" or "function". A job that BuildJob() made of keys that name no
/// way has "auto", here as in the schedule and the stages per rank; plan.h says what was chosen.
struct PartitionSpec {
  std::string method = "parameters";
  std::vector<int> bounds;  ///< "cuts": {0, 19, 22}, from the key or from strata.cut() marks
  FunctionRef function;     ///< "function": function(layers, stages) -> bounds
};

/// `name` is that of a generator (engine/schedule/generators/generators.h), "csv" or "function".
struct ScheduleSpec {
  std::string name = "1f1b";
  std::string source;  ///< "csv": the text of the schedule
  FunctionRef function;
};

/// Which layers do not keep their activations from forward to backward, but are computed again
/// before the backward. A segment is a run of layers that is computed again at once. Only the input
/// of each segment is kept.
struct RecomputeSpec {
  enum class Method {
    kNone,
    kStages,    ///< every stage is a segment
    kEvery,     ///< segments of `every` layers, counted from each stage's first
    kLayers,    ///< each of `layers` is a segment
    kFunction,  ///< each layer for which function(layer) is true, layer = {index, type, name, ...}
    kAuto,      ///< the planner chooses what takes the least time within the memory limit
  };
  Method method = Method::kNone;
  int every = 0;
  LayerSelector layers = {};
  FunctionRef function = {};
};

/// Begins the type of a metric that is run as a loss.
inline constexpr const char* kMetricPrefix = "eval.metrics.";

/// A number about outputs and targets. Without a function it is one of MetricTypes()
/// (job_fields.h).
struct MetricSpec {
  std::string name;
  FunctionRef function = {};  ///< function(output, target) -> mean of the rows, or sum and weight

  /// What such a function is run as. Its type is what messages call it.
  LayerSpec AsLoss() const {
    LayerSpec loss;
    loss.type = kMetricPrefix + name;
    loss.where = function.where;
    loss.scripted = true;
    loss.forward = function;
    return loss;
  }
};

/// Texts that a language model writes while it trains.
struct SamplesSpec {
  std::vector<std::string> prompts;  ///< none: nothing is written
  int64_t every = 0;                 ///< steps between two times; 0 = behind each evaluation
  Value options;                     ///< of TextFields() (job_fields.h)
};

/// In place of steps: the steps of a pass over data.train, which whoever opens the data knows.
inline constexpr int64_t kEveryEpoch = -1;
/// EvalSpec::every or SaveSpec::every in steps.
inline int64_t EverySteps(int64_t every, int64_t steps_per_epoch) {
  return every == kEveryEpoch ? steps_per_epoch : every;
}

/// When and how data.test is evaluated.
struct EvalSpec {
  int64_t every = 0;   ///< steps between evaluations, or kEveryEpoch; 0 = only at the end
  int64_t batch = 0;   ///< samples per micro-batch; 0 = the training micro-batch size
  std::string metric;  ///< "accuracy" (default for class losses), "none"
  /// For a loss function: the dim of the output that holds the classes, negative from the end;
  /// accuracy, top5, f1 and confusion go by it. None: the dim that labels do not have.
  std::optional<int64_t> class_dim = {};
  std::vector<MetricSpec> metrics = {};  ///< further ones
  SamplesSpec samples = {};
};

/// A number of the evaluations, and when it counts as better.
struct MonitorSpec {
  std::string monitor = {};  ///< "test.loss", "test.accuracy", ...; "" = none is looked at
  bool larger_is_better = false;
  int64_t patience = 0;  ///< evaluations in a row that may be no better
  double min_delta = 0;  ///< a smaller change is none
};

/// Functions of the script that rank 0 calls with the records of a training. An id below 0: none.
struct Callbacks {
  FunctionRef on_step;
  FunctionRef on_eval;
  FunctionRef on_epoch;
};

/// Where and when a training is saved.
struct SaveSpec {
  std::string dir;    ///< the folder of saves; "" = nothing is saved
  int64_t every = 0;  ///< steps between two saves, or kEveryEpoch; 0 = only at the end
  int64_t keep = 2;   ///< how many saves are kept; 0 = all
  /// What makes a save the best one, which is kept in a folder of its own in `dir`.
  MonitorSpec best = {};
};

/// The weights that a training begins with, from elsewhere.
struct WeightsSpec {
  std::string from = {};      ///< a save, or published weights; "" = none
  Value map = {};             ///< a built-in map's name, a table of rules, a function; null = none
  std::string prefix = {};    ///< what all names there begin with
  LayerSelector except = {};  ///< layers that keep their initial values
  /// What does not fit: true = is refused, false = is listed; none = what is missing is listed,
  /// another shape is refused.
  std::optional<bool> strict = {};
};

/// The value of `resume` that means the newest save in save.dir. If there is none yet, the training
/// starts from the beginning.
inline constexpr const char* kLatestSave = "latest";

/// A checked job. docs/keys.md has every key.
struct Job {
  std::string script;  ///< the script's path as given; "" for a job typed at the prompt
  std::string name;
  std::vector<LayerSpec> layers;    ///< flattened; a layer's index is its place here
  std::optional<TensorSpec> input;  ///< of ONE sample, without the batch dim; none = from the data
  LayerSpec loss;                   ///< a loss layer, or scripted: function(output, target)
  PartitionSpec partition;
  Parallel parallel;
  ScheduleSpec schedule;
  int stages_per_rank = 1;  ///< 0 = "auto"
  bool rebalance = true;    ///< layers may move to other ranks between steps, where cuts are chosen
  Batch batch;
  OptimizerSpec optimizer;
  LrScheduleSpec lr_schedule;
  double clip = 0;  ///< largest global gradient norm; 0 = no clipping
  int zero = 0;     ///< 1 = the optimizer's state is sharded over the replicas (ZeRO-1)
  LayerSelector freeze;
  RecomputeSpec recompute;
  Precision precision;
  int64_t memory = 0;  ///< the limit of a rank's tensors in bytes; 0 = no limit
  std::string costs;   ///< a file of measured costs (engine/cost/profile.h); "" = none
  std::string links;   ///< a file of measured links (engine/cost/link_table.h); "" = none
  DataSpec train_data;
  DataSpec test_data;
  EvalSpec eval;
  MonitorSpec stop;   ///< ends the training once its number gets no better
  int64_t steps = 0;  ///< 0 = left out
  double epochs = 0;  ///< 0 = left out
  int64_t seed = 1234;
  SaveSpec save;
  std::string resume;  ///< a save, a folder of saves or kLatestSave; "" = start from the beginning
  WeightsSpec weights;
  bool trains = true;     ///< false: outputs alone are computed; no key, commands set it
  FunctionRef seed_fn;    ///< function(layer) -> seed of the layer's initial values
  std::string device;     ///< "cuda", "cpu", or "" = cuda if there is a GPU, else cpu with a notice
  std::string transport;  ///< "nccl", "gloo", "threads", or "" = derived
  int threads = 0;        ///< for each rank; 0 = the machine's cores divided by its ranks
  double timeout = 1800;  ///< seconds until a communication fails
  double hang_timeout = 0;  ///< seconds without progress until the watchdog acts; 0 = HangSeconds()
  int64_t tie_check = 100;  ///< steps between two comparisons of tied parameters; 0 = never
  bool comm_log = false;    ///< what collectives took, at the end
  std::string log;          ///< JSONL file; "" = none
  std::string trace;        ///< Chrome's trace format, with every action's time; "" = none
  /// "stop", "skip" or "warn": what becomes of a step whose loss or gradients are not finite.
  std::string nonfinite = "stop";
  bool losses = false;      ///< print and return the loss of every micro-batch
  bool grad_norms = false;  ///< the log has the norm of every layer's gradient
  int64_t histograms = 0;   ///< steps between two histograms of the gradients; 0 = none
  Callbacks callbacks;

  /// The canonical form: every key with its value; functions by place and digest. Equal jobs give
  /// equal Values on every rank. FirstDifference() (value.h) names where two differ.
  Value ToValue() const;
};

/// The keys that may change between a save and the training that goes on from it: they say where
/// and how long a job trains, not what it learns.
std::vector<std::string> KeysFreeOnResume();

}  // namespace strata
