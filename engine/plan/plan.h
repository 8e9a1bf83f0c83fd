// Plan: a Job placed on ranks. Cuts, stage-to-rank map, shapes, parameters. Everything that will
// run is decided here and can be printed before a process starts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/cost/link_table.h"
#include "engine/cost/profile.h"
#include "engine/cost/stage_memory.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/topology.h"

namespace strata {

struct LayerPlan {
  int index = 0;
  std::string path;  ///< LayerSpec::name, or the index
  std::string type;
  int64_t parameters = 0;  ///< trainable elements; a tied one counts on each holder
  int64_t frozen = 0;      ///< elements that get no gradient
  int stage = 0;
  /// Layers of one number are recomputed together, from the input of the first; -1: activations are
  /// kept.
  int segment = -1;
  TensorSpecs output;  ///< for one full micro-batch
};

struct StagePlan {
  int stage = 0;
  int rank = 0;   ///< on the pipe axis; with data = model = 1 also the global rank
  int begin = 0;  ///< first layer
  int end = 0;    ///< one past the last layer
  int64_t parameters = 0;
  TensorSpecs input;  ///< for one full micro-batch; also what passes by (connections.h)
  TensorSpecs output;
};

/// What layers share by strata.tied{key, ...}.
struct TiePlan {
  std::string key;
  std::vector<int> layers;  ///< its uses, ascending
  std::vector<int> stages;  ///< of each use
  int tensors = 1;          ///< that they share
  bool frozen = false;      ///< no use has a gradient
};

struct Plan {
  Topology topology;
  std::vector<int> bounds;  ///< stages + 1 cuts: {0, 19, 22}
  std::string schedule;     ///< the job's, or what was chosen for "auto"
  /// Bytes of a rank's tensors that a program searched for this plan keeps to, without `costs` the
  /// number of its activations; 0 = any.
  int64_t program_memory = 0;
  std::vector<LayerPlan> layers;
  std::vector<StagePlan> stages;
  std::vector<TiePlan> ties;  ///< in the order of keys
  int64_t parameters = 0;     ///< trainable elements of the model, each tied one once
  Batch batch;                ///< complete
  std::string device;         ///< "cpu" or "cuda"
  std::string transport;      ///< "threads", "gloo" or "nccl"
  std::string unordered;      ///< on a GPU the layers with UnorderedOnGpu(): "layer 3 Upsample"
  /// Which dim of the last layer's output holds the classes (LayerSpec::class_dim); none where the
  /// loss has no classes, the output has two dims, or planning does not know it or the target.
  std::optional<int> class_dim;
  std::string class_dim_text;  ///< how that was decided, for `plan`; empty for outputs of two dims
  int64_t memory = 0;          ///< the job's limit for the tensors of a rank, bytes; 0 = none
  /// Where they were needed (a partition by time or memory, a memory limit, a choice) or given;
  /// null: CostsOf() (plan_costs.h) makes them, without seconds.
  std::shared_ptr<const ModelCosts> costs;
  /// Between the job's ranks, where a file says what was measured; null: all are alike.
  std::shared_ptr<const LinkTable> links;
  std::vector<std::string>
      notices;  ///< what was decided for the user, worth a line on the terminal

  /// Ranks of the pipe axis.
  int pipe() const { return topology.Size("pipe"); }
  int stages_per_rank() const { return static_cast<int>(stages.size()) / pipe(); }
  /// The rank of every stage.
  std::vector<int> stage_ranks() const;
  /// Stages with a gradient that ties sum, ascending: their programs need REDUCE_TIED.
  std::vector<int> tied_stages() const;
  std::vector<int> segments() const;  ///< LayerPlan::segment of every layer
};

/// Rows of the first layer's table, which tokens count; 0 for other layers.
int64_t TableRows(const Job& job);

/// Trainable parameters of a layer that it shares with others (strata.tied).
std::vector<ParameterSpec> SharedParameters(const LayerSpec& spec);
/// Their elements.
int64_t SharedElements(const LayerSpec& spec);

/// The job's loss, with what planning has found out about it.
LayerSpec PlannedLoss(const Job& job, const Plan& plan);

/// What the place of running contributes.
struct PlanOptions {
  int world_size = 0;  ///< 0 = the product of the degrees
  int gpus = 0;        ///< on this machine: GpuCount() (engine/base/machine/gpu.h)
  /// The rank of every stage, as the schedule says (PlanJob()); empty: LoopMap().
  std::vector<int> stage_ranks = {};
  /// How many micro-batches each stage has alive, and its links, for memory limits; empty: as 1F1B.
  std::vector<StageSetting> settings = {};
  /// Runs layers on this machine: the job's for partition = "time", some probes for "auto"; empty:
  /// nobody can.
  Measure measure = {};
  bool wants_seconds = false;  ///< measures for any partition
  bool wants_rates = false;    ///< predicts seconds for any, as "auto" does
  /// Predicts for any what seconds that are known tell; nothing is measured for that.
  bool wants_known = false;
  /// Of machines that need not be here, in place of the file that the job names.
  std::shared_ptr<const LinkTable> links = {};
};

/// Places the job; the list is cut into a stage for each entry of the stage map. Throws
/// ConfigError: more stages than layers, degrees that do not divide the world, shapes that do not
/// fit (both layers named), cuts that do not cover the list, a device or transport that is not
/// there; a partition by time where nobody can measure and no costs were given; a file of costs or
/// links that is not there or is another job's; a memory limit that no cut keeps. Left out, the
/// device is cuda where there is a GPU, else cpu with a notice; the transport is nccl where every
/// rank has a GPU, threads for one rank and for ranks that share a GPU, else gloo.
Plan MakePlan(const Job& job, const PlanOptions& options, Script* script);

}  // namespace strata
