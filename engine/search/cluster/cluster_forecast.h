// ClusterForecast: the step of one way to train, on a cluster: its time and what it is made of, and
// the memory of every rank of the pipe axis. What plan_search.h compares and `strata plan
// --simulate` shows.
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

/// What is computed again in the backward.
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

/// What all candidates have in common.
struct Training {
  double state_bytes = 0;     ///< of the optimizer, per trainable element
  double update_seconds = 0;  ///< of its step, per trainable element
  bool clips = false;         ///< steps wait for the norm of all gradients
};

/// The network on this cluster's devices.
class Network {
 public:
  virtual ~Network() = default;
  virtual int layers() const = 0;
  virtual Training training() const = 0;
  /// Null where the network does not run with these; the search goes on without.
  virtual std::shared_ptr<const StageTable> Table(int64_t micro_batch_size, int model,
                                                  Recompute recompute) = 0;
};

/// One rank of the pipe axis; all its replicas do the same.
struct RankForecast {
  double busy = 0;    ///< seconds of compute
  double ready = 0;   ///< when its last backward ends
  double reduce = 0;  ///< seconds of gradients over the replicas, with ZeRO also of the values
  double update = 0;  ///< seconds of the optimizer's step
  double end = 0;     ///< of its step

  double memory = 0;       ///< bytes at the highest: the sum of these three
  double model_bytes = 0;  ///< weights, gradients, the optimizer's state
  double activations = 0;  ///< everything else, as PeaksOfRows() has it

  double sent_messages = 0;  ///< bytes over pipe links in a step
  double sent_replicas = 0;  ///< bytes to its replicas in a step
  double sent_model = 0;     ///< bytes along the model axis in a step
};

struct ClusterForecast {
  double step = 0;       ///< seconds
  double pipeline = 0;   ///< the part of it until the last backward ends
  double bubble = 0;     ///< share of the pipeline's time in which ranks wait, the mean
  double recompute = 0;  ///< seconds of the busiest rank that go into computing again
  double memory = 0;     ///< bytes of the fullest rank
  std::vector<RankForecast> ranks;
};

/// What is slower than it should be. Ranks are those of the whole grid, (pipe * D + data) * M +
/// model.
struct Slowness {
  // Each by how many times as long it takes:
  std::map<int, double> ranks = {};                  ///< all compute of the rank
  std::map<int, double> nodes = {};                  ///< all messages between the node and others
  std::map<std::pair<int, int>, double> links = {};  ///< messages between two ranks, lower first

  bool empty() const { return ranks.empty() && nodes.empty() && links.empty(); }
};

/// A stage of the candidate's cut.
const StageCost& StageOf(const Candidate& candidate, const StageTable& table, int stage);

/// What follows between replicas when a stage has its gradients.
struct Reduction {
  double seconds = 0;  ///< of gradients, with ZeRO also of the values
  double sent = 0;     ///< bytes that each replica sends
  double update = 0;   ///< seconds of the optimizer's step
};
Reduction ReductionOf(const Candidate& candidate, const StageCost& stage, const Training& training,
                      const Group& replicas);

/// What the simulator needs of a candidate; also for programs made elsewhere. `replica`: the data
/// coordinate, for slowness.
schedule::Costs ClusterCosts(const Candidate& candidate, const StageTable& table,
                             const Cluster& cluster, const std::vector<int>& stage_ranks,
                             const Slowness& slowness = {}, int replica = 0);

/// The candidate's program: its schedule, with recomputation. Throws ConfigError where the schedule
/// cannot have the sizes.
schedule::Program ProgramOf(const Candidate& candidate);

/// Whether the schedule splits backwards in I and W.
bool SplitsBackward(const std::string& schedule);

/// Bytes that live from step to step on the stage's rank.
double ModelBytes(const Candidate& candidate, const StageCost& stage, const Training& training);

/// The group of a rank's replicas: those of pipe coordinate `rank`, model coordinate 0.
Group ReplicasOf(const Candidate& candidate, const Cluster& cluster, int rank);

/// The link between two ranks of the pipe axis; where replicas have different ones, the slowest.
LinkRates PipeLink(const Candidate& candidate, const Cluster& cluster, int from, int to);

/// The whole step. Ranks of a model axis go at the pace of the slowest. Replicas wait for each
/// other where gradients are summed. Where slowness makes replicas differ, the slowest is told.
/// REQUIRES: bounds of the table's layers; the cluster has ranks() devices.
ClusterForecast ForecastClusterStep(const Candidate& candidate, const StageTable& table,
                                    const Training& training, const Cluster& cluster,
                                    const schedule::Program& program,
                                    const Slowness& slowness = {});

}  // namespace strata::search
