// Places candidates, ways to train, on a described cluster, where evaluate.h predicts their steps.
// plan_search.h compares these, and `strata plan --simulate` shows one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/forecast/decisions.h"
#include "engine/forecast/evaluate.h"
#include "engine/schedule/program.h"
#include "engine/search/cluster/cluster.h"
#include "engine/search/cluster/stage_table.h"

namespace strata::search {

/// The layers that are computed again in the backward.
enum class Recompute {
  kNone,
  kLayers,  ///< each layer by itself: recompute = {every=1}
  kStages,  ///< each stage as a whole: recompute = true
  kAuto,    ///< chosen layer by layer (recompute_choice.h); only in a result, it has no table
};

/// One way to train.
struct Candidate : Decisions {
  Recompute recompute = Recompute::kNone;
  int zero = 0;
  int64_t memory = 0;  ///< with kAuto: the bytes of a rank that the choice keeps to

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

/// What follows once a stage has its gradients.
StageEnd EndOf(const Candidate& candidate, const StageCost& stage, const Training& training,
               const Group& replicas);

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

/// How many times as long each rank of the pipe axis takes as the cluster's first device, on its
/// fastest and on its slowest replica. Empty if all devices are alike.
struct Paces {
  std::vector<double> least, most;
};
Paces PacesOf(const Candidate& candidate, const Cluster& cluster);
/// The memory of each rank of the pipe axis, the least of its replicas; empty if all are alike.
std::vector<double> MemoriesOf(const Candidate& candidate, const Cluster& cluster);

/// The candidate on the cluster. The ranks of a model axis run at the pace of the slowest. If
/// slowness or the abilities of devices make replicas differ, each kind of them is simulated.
/// REQUIRES: the candidate's bounds fit the table's layers; the cluster has at least ranks()
/// devices. `stage_ranks`: of the program.
Placed PlacedOn(const Candidate& candidate, const StageTable& table, const Training& training,
                const Cluster& cluster, const std::vector<int>& stage_ranks,
                const Slowness& slowness = {});

}  // namespace strata::search
