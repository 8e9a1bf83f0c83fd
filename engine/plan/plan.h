// Plan: a Job placed on ranks, with its cuts, its map of stages to ranks, shapes and parameters. It
// decides everything that will run, and can be printed before a process starts.
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
  std::string path;  ///< LayerSpec::name, or the index if it has none
  std::string type;
  int64_t parameters = 0;  ///< trainable elements; a tied parameter counts on each of its layers
  int64_t frozen = 0;      ///< elements that get no gradient
  int stage = 0;
  /// Layers with the same number are recomputed together, from the input of the first. -1: the
  /// layer keeps its activations.
  int segment = -1;
  TensorSpecs output;  ///< for one full micro-batch
};

struct StagePlan {
  int stage = 0;
  int rank = 0;   ///< on the pipe axis; if data = model = 1, also the global rank
  int begin = 0;  ///< first layer
  int end = 0;    ///< one past the last layer
  int64_t parameters = 0;
  TensorSpecs
      input;  ///< for one full micro-batch; includes tensors that pass the stage by (connections.h)
  TensorSpecs output;
};

/// The layers that share parameters by one strata.tied{key, ...}.
struct TiePlan {
  std::string key;
  std::vector<int> layers;  ///< the layers that use it, ascending
  std::vector<int> stages;  ///< the stage of each of these layers
  int tensors = 1;          ///< the number of tensors that they share
  bool frozen = false;      ///< true: the shared tensors get no gradient
};

struct Plan {
  Topology topology;
  std::vector<int> bounds;  ///< stages + 1 cuts: {0, 19, 22}
  std::string schedule;     ///< the job's, or the one that was chosen for "auto"
  /// The limit of memory for a program that is searched for this plan: the bytes of a rank's
  /// tensors, or if there are no `costs` the number of its activations; 0 = no limit.
  int64_t program_memory = 0;
  std::vector<LayerPlan> layers;
  std::vector<StagePlan> stages;
  std::vector<TiePlan> ties;  ///< in the order of keys
  int64_t parameters = 0;     ///< trainable elements of the model; each tied parameter counts once
  Batch batch;                ///< with all its fields set
  std::string device;         ///< "cpu" or "cuda"
  std::string transport;      ///< "threads", "gloo" or "nccl"
  std::string unordered;      ///< on a GPU the layers with UnorderedOnGpu(): "layer 3 Upsample"
  /// Which dim of the last layer's output holds the classes (LayerSpec::class_dim); none where the
  /// loss has no classes, the output has two dims, or planning does not know it or the target.
  std::optional<int> class_dim;
  std::string
      class_dim_text;  ///< how class_dim was decided, for `plan`; empty for outputs of two dims
  /// The limit for the tensors of a rank, in bytes, of the rank with the largest; 0 = none.
  int64_t memory = 0;
  /// Of each rank of the pipe axis how many times as long its layers take as `costs` say: the
  /// inverse of the speed of the slowest of its replicas. Empty if all speeds are 1.
  std::vector<double> slowness = {};
  /// Of each rank of the pipe axis the limit of memory, the least of its replicas. Empty if all
  /// have `memory`.
  std::vector<int64_t> memories = {};
  /// The costs of the layers, if they were given or needed (for a partition by time or memory, a
  /// memory limit, or a choice). Null otherwise; CostsOf() (plan_costs.h) then makes costs without
  /// seconds.
  std::shared_ptr<const ModelCosts> costs;
  /// The measured links between the job's ranks, from a file; null: all links count as equal.
  std::shared_ptr<const LinkTable> links;
  std::vector<std::string>
      notices;  ///< decisions made for the user that deserve a line on the terminal

  /// The number of ranks on the pipe axis.
  int pipe() const { return topology.Size("pipe"); }
  int stages_per_rank() const { return static_cast<int>(stages.size()) / pipe(); }
  /// The rank of every stage.
  std::vector<int> stage_ranks() const;
  /// The stages of ties with a gradient and more than one use, ascending. Their programs need
  /// REDUCE_TIED.
  std::vector<int> tied_stages() const;
  std::vector<int> segments() const;  ///< LayerPlan::segment of every layer
  /// The slowness and the memory limit of a rank of the pipe axis.
  double SlownessOf(int rank) const { return slowness.empty() ? 1 : slowness[rank]; }
  int64_t MemoryOf(int rank) const { return memories.empty() ? memory : memories[rank]; }
};

/// The number of rows in the table of the first layer, if it is an embedding of tokens; 0
/// otherwise.
int64_t TableRows(const Job& job);

/// The trainable parameters of a layer that it shares with others (strata.tied).
std::vector<ParameterSpec> SharedParameters(const LayerSpec& spec);
/// The number of elements of SharedParameters().
int64_t SharedElements(const LayerSpec& spec);

/// The job's loss, with the class_dim that planning has found.
LayerSpec PlannedLoss(const Job& job, const Plan& plan);

/// What the place where the job runs contributes to its plan.
struct PlanOptions {
  int world_size = 0;  ///< number of ranks; 0 = the product of the degrees
  int gpus = 0;        ///< number on this machine: GpuCount() (engine/base/machine/gpu.h)
  /// The rank of every stage, according to the schedule (PlanJob()); empty: LoopMap().
  std::vector<int> stage_ranks = {};
  /// The number of live micro-batches and of slots of each stage, for memory limits. Planning sets
  /// the other fields itself. Empty: as in 1F1B.
  std::vector<StageSetting> settings = {};
  /// The machines of the job in the order of ranks, with what a host file says about their ranks;
  /// empty if they are not known.
  std::vector<RankHost> hosts = {};
  /// Measures layers on this machine: the job's own for partition = "time", those or some probes
  /// for "auto". Empty: nothing can be measured.
  Measure measure = {};
  bool wants_seconds = false;  ///< true: measure the layers for any partition
  bool wants_rates = false;    ///< true: predict seconds for any partition, as for "auto"
  /// True: predict seconds for any partition if they are known from earlier measurements. Nothing
  /// is measured for that.
  bool wants_known = false;
  /// The links of machines that need not be here; they replace the file that the job names.
  std::shared_ptr<const LinkTable> links = {};
};

/// Places the job. The list of layers is cut into one stage for each entry of the stage map. If the
/// job does not say: the device is cuda if there is a GPU, else cpu (with a notice); the transport
/// is nccl if every rank has a GPU, threads for one rank or for ranks that share a GPU, else gloo.
/// Throws ConfigError for
///  1. more stages than layers, or cuts that do not cover the list;
///  2. degrees that do not divide the world;
///  3. shapes that do not fit (both layers are named);
///  4. a device or transport that is not there;
///  5. a partition by time, if nothing can be measured and no costs are given;
///  6. a file of costs or links that is not there or belongs to another job;
///  7. a memory limit that no cut keeps.
Plan MakePlan(const Job& job, const PlanOptions& options, Script* script);

}  // namespace strata
