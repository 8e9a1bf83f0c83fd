// ClusterForecast: predicts the step of one way to train on a cluster: its time and the parts of
// it, and the memory of every rank of the pipe axis. plan_search.h compares these forecasts, and
// `strata plan --simulate` shows one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/forecast/decisions.h"
#include "engine/schedule/program.h"
#include "engine/schedule/simulator.h"
#include "engine/search/cluster/cluster.h"
#include "engine/search/cluster/stage_table.h"

namespace strata::search {

/// The layers that are computed again in the backward.
enum class Recompute {
  kNone,
  kLayers,  ///< each layer by itself: recompute = {every=1}
  kStages,  ///< each stage as a whole: recompute = true
};

/// One way to train.
struct Candidate : Decisions {
  Recompute recompute = Recompute::kNone;
  int zero = 0;

  bool operator==(const Candidate&) const = default;
};

/// Numbers that all candidates share.
struct Training {
  double state_bytes = 0;     ///< optimizer state, per trainable element
  double update_seconds = 0;  ///< of the optimizer step, per trainable element
  bool clips = false;         ///< true if a step waits for the norm of all gradients
};

/// The costs of a network on the devices of one cluster.
class Network {
 public:
  virtual ~Network() = default;
  virtual int layers() const = 0;
  virtual Training training() const = 0;
  /// The table for these sizes; null if the network cannot run with them, and the search skips
  /// them.
  virtual std::shared_ptr<const StageTable> Table(int64_t micro_batch_size, int model,
                                                  Recompute recompute) = 0;
};

/// The forecast of one rank of the pipe axis; all its replicas do the same.
struct RankForecast {
  double busy = 0;   ///< seconds of compute
  double ready = 0;  ///< the second at which its last backward ends
  /// Seconds of reducing gradients over the replicas; with ZeRO also of gathering values.
  double reduce = 0;
  double update = 0;  ///< seconds of the optimizer step
  double end = 0;     ///< the second at which its step ends

  double memory = 0;       ///< peak bytes; model_bytes plus activations
  double model_bytes = 0;  ///< weights, gradients, optimizer state
  double activations = 0;  ///< everything else, as in PeaksOfRows()

  double sent_messages = 0;  ///< bytes over pipe links in a step
  double sent_replicas = 0;  ///< bytes to its replicas in a step
  double sent_model = 0;     ///< bytes along the model axis in a step
};

struct ClusterForecast {
  double step = 0;       ///< seconds
  double pipeline = 0;   ///< the part of it until the last backward ends
  double bubble = 0;     ///< mean share of the pipeline time in which ranks wait
  double recompute = 0;  ///< seconds of recomputation on the busiest rank
  double memory = 0;     ///< bytes of the fullest rank
  std::vector<RankForecast> ranks;
};

/// Ranks, nodes and links that are slower than predicted. Ranks are numbered in the whole grid:
/// (pipe * D + data) * M + model.
struct Slowness {
  // Each entry is the factor by which the time is longer:
  std::map<int, double> ranks = {};                  ///< all compute of the rank
  std::map<int, double> nodes = {};                  ///< all messages between the node and others
  std::map<std::pair<int, int>, double> links = {};  ///< messages between two ranks, lower first

  bool empty() const { return ranks.empty() && nodes.empty() && links.empty(); }
};

/// The cost of a stage of the candidate's cuts.
const StageCost& StageOf(const Candidate& candidate, const StageTable& table, int stage);

/// The work between replicas after a stage has its gradients.
struct Reduction {
  double seconds = 0;  ///< of reducing gradients; with ZeRO also of gathering values
  double sent = 0;     ///< bytes that each replica sends
  double update = 0;   ///< seconds of the optimizer step
};
Reduction ReductionOf(const Candidate& candidate, const StageCost& stage, const Training& training,
                      const Group& replicas);

/// The simulator's costs of a candidate; also usable for programs made elsewhere. `replica`: the
/// data coordinate, which matters for slowness.
schedule::Costs ClusterCosts(const Candidate& candidate, const StageTable& table,
                             const Cluster& cluster, const std::vector<int>& stage_ranks,
                             const Slowness& slowness = {}, int replica = 0);

/// The candidate's program: its schedule, with recomputation. Throws ConfigError if the schedule
/// does not support the sizes.
schedule::Program ProgramOf(const Candidate& candidate);

/// True if the schedule splits backwards into I and W.
bool SplitsBackward(const std::string& schedule);

/// Bytes on the stage's rank that live from step to step.
double ModelBytes(const Candidate& candidate, const StageCost& stage, const Training& training);

/// The group of the replicas of pipe coordinate `rank`, with model coordinate 0.
Group ReplicasOf(const Candidate& candidate, const Cluster& cluster, int rank);

/// The link between two ranks of the pipe axis; the slowest one if it differs between replicas.
LinkRates PipeLink(const Candidate& candidate, const Cluster& cluster, int from, int to);

/// Predicts a whole step. The ranks of a model axis run at the pace of the slowest. Replicas wait
/// for each other when gradients are summed; if slowness makes replicas differ, the result
/// describes the slowest. REQUIRES: the candidate's bounds fit the table's layers; the cluster has
/// at least ranks() devices.
ClusterForecast ForecastClusterStep(const Candidate& candidate, const StageTable& table,
                                    const Training& training, const Cluster& cluster,
                                    const schedule::Program& program,
                                    const Slowness& slowness = {});

}  // namespace strata::search
