// Job: a script's job, complete and checked, as plain data. The script becomes a Job, the Job a
// Plan, and the Plan a Program. A Job does not assign work to ranks; MakePlan()
// (engine/plan/plan.h) does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/base/value.h"
#include "engine/job/precision.h"
#include "engine/job/rank_abilities.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// The degrees of the grid of ranks. 0 = omitted; derived from the world size (data =
/// world/(pipe*model)).
struct Parallel {
  int pipe = 0;
  int data = 0;
  int model = 0;
};

/// The batch of one replica, in samples; 0 = omitted. size = micro_batches * micro_batch_size, so
/// two of the three are enough. ResolveBatch() fills in the third.
struct Batch {
  int64_t size = 0;
  int64_t micro_batches = 0;
  int64_t micro_batch_size = 0;
};

/// Returns the batch with all three sizes. Throws ConfigError if fewer than two are given, or if
/// the three contradict each other.
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
  /// A regular expression that must be found in the parameter's name in saves ("bias|ln_f.weight");
  /// "" = all.
  std::string parameters;
  /// A map: overrides of the optimizer's options (lr, weight_decay, ...).
  Value options;
  /// A condition on the number of dims of the parameter: "<2", ">=2", "==1"; "" = any.
  std::string dims = {};
  /// The group's own type of optimizer; `options` then holds every field of its table. "" = that of
  /// the job.
  std::string type = {};
};

/// Trains low-rank parts beside some weights instead of the weights (adapt.h).
struct AdaptSpec {
  std::string type = {};  ///< one of AdaptTypes(); "" = `adapt` is left out
  Value options = {};     ///< every field of its table
  /// The base: the parameters that do not learn, by their names in saves, sorted. Saves do not hold
  /// them.
  std::vector<std::string> base = {};

  bool is_on() const { return !type.empty(); }
  /// True for a tensor of the base. `name` is its name in saves.
  bool IsBase(const std::string& name) const;
};

/// `type` is one of OptimizerTypes() (job_fields.h); `options` holds every field of its table.
struct OptimizerSpec {
  std::string type = "sgd";
  Value options;
  std::vector<ParameterGroup> groups;
  /// Decay of the moving average of each parameter; 0 = no average is kept.
  double ema = 0;
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
  std::vector<std::string> notes = {};  ///< notes for the user, from Dataset::notes()
  /// Only for data.train: facts that the options leave out (MatchClasses()).
  std::vector<std::string> class_names = {};
  std::string encoding = {};
};

/// How the list of layers is cut into stages. `method` is "auto", "uniform", "parameters", "time",
/// "memory", "type:REGEX", "cuts" or "function". If the keys do not name a partition, a schedule or
/// the stages per rank, BuildJob() sets each to "auto"; the plan (plan.h) has what was chosen.
struct PartitionSpec {
  std::string method = "parameters";
  std::vector<int> bounds;  ///< "cuts": {0, 19, 22}, from the key or from strata.cut() marks
  FunctionRef function;     ///< "function": function(layers, stages) -> bounds
};

/// `name` is the name of a generator (engine/schedule/generators/generators.h), "csv" or
/// "function".
struct ScheduleSpec {
  std::string name = "1f1b";
  std::string source;  ///< "csv": the text of the schedule
  FunctionRef function;
};

/// The layers that do not keep their activations from forward to backward, and run forward again
/// before their backward. A segment is a run of layers that is recomputed at once; only the input
/// of each segment is kept.
struct RecomputeSpec {
  enum class Method {
    kNone,
    kStages,    ///< every stage is a segment
    kEvery,     ///< segments of `every` layers, counted from each stage's first
    kLayers,    ///< each of `layers` is a segment
    kFunction,  ///< each layer for which function(layer) is true, layer = {index, type, name, ...}
    kAuto,      ///< the planner chooses the fastest within the memory limit
  };
  Method method = Method::kNone;
  int every = 0;
  LayerSelector layers = {};
  FunctionRef function = {};
};

/// The prefix of the type of a metric that runs as a scripted loss.
inline constexpr const char* kMetricPrefix = "eval.metrics.";

/// A number that an evaluation computes from outputs and targets. Without a function it is one of
/// MetricTypes() (job_fields.h).
struct MetricSpec {
  std::string name;
  /// function(output, target) -> the mean over the rows, or a sum and a weight.
  FunctionRef function = {};

  /// The scripted loss that computes the metric. Messages show its type.
  LayerSpec AsLoss() const {
    LayerSpec loss;
    loss.type = kMetricPrefix + name;
    loss.where = function.where;
    loss.scripted = true;
    loss.forward = function;
    return loss;
  }
};

/// Texts that a language model continues while it trains.
struct SamplesSpec {
  std::vector<std::string> prompts;  ///< empty: no text is written
  /// Steps between two times; 0 = after each evaluation.
  int64_t every = 0;
  Value options;  ///< the fields of TextFields() (job_fields.h)
};

/// A number of steps that stands for one pass over data.train. Its length is known once the data is
/// open.
inline constexpr int64_t kEveryEpoch = -1;
/// Resolves EvalSpec::every or SaveSpec::every to a number of steps.
inline int64_t EverySteps(int64_t every, int64_t steps_per_epoch) {
  return every == kEveryEpoch ? steps_per_epoch : every;
}

/// When and how data.test is evaluated.
struct EvalSpec {
  int64_t every = 0;   ///< steps between evaluations, or kEveryEpoch; 0 = only at the end
  int64_t batch = 0;   ///< samples per micro-batch; 0 = the training micro-batch size
  std::string metric;  ///< "accuracy" (default for class losses), "none"
  /// For a loss function: the dim of the output that holds the classes, counted from the end if
  /// negative; accuracy, top5, f1 and confusion use it. None: the dim of the output that the labels
  /// do not have.
  std::optional<int64_t> class_dim = {};
  std::vector<MetricSpec> metrics = {};  ///< further metrics
  SamplesSpec samples = {};
};

/// A number of the evaluations that decides something, and the rule for when it has become better.
struct MonitorSpec {
  /// "test.loss", "test.accuracy", ...; "" = nothing is monitored.
  std::string monitor = {};
  bool larger_is_better = false;
  int64_t patience = 0;  ///< bad evaluations in a row that end the training; 0 is as 1
  double min_delta = 0;  ///< a smaller change does not count as better
};

/// Functions of the script that rank 0 calls with the records of a training. A function with an id
/// below 0 is not set.
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
  /// The number that decides which save is the best one. The best save is kept in a folder of its
  /// own in `dir`.
  MonitorSpec best = {};
};

/// Weights from elsewhere with which the training begins.
struct WeightsSpec {
  std::string from = {};  ///< a save, or published weights; "" = none
  /// The name of a built-in map, a table of rules, or a function; null = none.
  Value map = {};
  std::string prefix = {};    ///< the prefix that all names in the file have
  LayerSelector except = {};  ///< layers that keep their initial values
  /// Treats tensors that are missing or have another shape: true = both are refused, false = both
  /// are listed; none = missing ones are listed, another shape is refused.
  std::optional<bool> strict = {};
};

/// In which steps another rank repeats a part of the work and compares bits (runtime/check/).
struct CheckSpec {
  int64_t every = 0;  ///< every step whose number, from 1, is a multiple of it; 0 = not said
  double share = 0;  ///< of the time: `every` follows from what a checked step is predicted to take
  bool is_on() const { return every > 0 || share > 0; }
};

/// The value of `resume` that means the newest save in save.dir. If there is none yet, the training
/// starts from the beginning.
inline constexpr const char* kLatestSave = "latest";

/// A checked job. docs/keys.md describes every key.
struct Job {
  std::string script;  ///< the script's path as given; "" for a job typed at the prompt
  std::string name;
  std::vector<LayerSpec> layers;  ///< flattened; a layer's index is its position here
  /// The input of ONE sample, without the batch dim; none = taken from the data.
  std::optional<TensorSpec> input;
  LayerSpec loss;  ///< a loss layer, or scripted: function(output, target)
  PartitionSpec partition;
  Parallel parallel;
  ScheduleSpec schedule;
  int stages_per_rank = 1;  ///< 0 = "auto"
  /// Layers may move to other ranks between steps, if the partition is chosen automatically.
  bool rebalance = true;
  Batch batch;
  OptimizerSpec optimizer;
  LrScheduleSpec lr_schedule;
  double clip = 0;  ///< largest global gradient norm; 0 = no clipping
  int zero = 0;     ///< 1, 2 = replicas share the optimizer's state, the gradients (ZeRO)
  LayerSelector freeze;
  AdaptSpec adapt;
  RecomputeSpec recompute;
  Precision precision;
  /// The memory limit of a rank's tensors in bytes; 0 = no limit.
  int64_t memory = 0;
  RanksSpec ranks;    ///< speed and memory of ranks that differ
  std::string costs;  ///< a file of measured costs (engine/cost/profile.h); "" = none
  std::string links;  ///< a file of measured links (engine/cost/link_table.h); "" = none
  DataSpec train_data;
  DataSpec test_data;
  EvalSpec eval;
  /// Ends the training when its number does not get better any more.
  MonitorSpec stop;
  int64_t steps = 0;  ///< 0 = left out
  double epochs = 0;  ///< 0 = left out
  int64_t seed = 1234;
  SaveSpec save;
  std::string resume;  ///< a save, a folder of saves or kLatestSave; "" = start from the beginning
  WeightsSpec weights;
  /// False if only outputs are computed. No key sets it; commands do.
  bool trains = true;
  FunctionRef seed_fn;  ///< function(layer) -> seed of the layer's initial values
  /// "cuda", "cpu", or "" = cuda if there is a GPU, else cpu with a notice.
  std::string device;
  std::string transport;    ///< "nccl", "gloo", "threads", or "" = derived
  int threads = 0;          ///< threads of each rank; 0 = the machine's cores divided by its ranks
  double timeout = 1800;    ///< seconds until a communication fails
  double hang_timeout = 0;  ///< seconds without progress until the watchdog acts; 0 = HangSeconds()
  int64_t tie_check = 100;  ///< steps between two comparisons of tied parameters; 0 = never
  CheckSpec check;
  bool comm_log = false;  ///< show the time of collectives at the end
  std::string log;        ///< JSONL file; "" = none
  /// A file in Chrome's trace format with the time of every action; "" = none.
  std::string trace;
  /// The treatment of a step whose loss or gradients are not finite: "stop", "skip" or "warn".
  std::string nonfinite = "stop";
  bool losses = false;      ///< print and return the loss of every micro-batch
  bool grad_norms = false;  ///< the log has the norm of every layer's gradient
  int64_t histograms = 0;   ///< steps between two histograms of the gradients; 0 = none
  Callbacks callbacks;

  /// The canonical form: every key with its value; functions by place and digest. Equal jobs have
  /// equal Values on every rank. FirstDifference() (value.h) names the first difference of two.
  Value ToValue() const;
};

/// The keys that may change between a save and the training that resumes from it: they determine
/// where and how long a job trains, not what it learns.
std::vector<std::string> KeysFreeOnResume();

}  // namespace strata
