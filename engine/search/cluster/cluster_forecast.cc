#include "engine/search/cluster/cluster_forecast.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include "engine/base/check.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/forecast/step_costs.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/row_walk.h"

namespace strata::search {

using schedule::Kind;
using schedule::Program;
using schedule::Step;

namespace {

double FactorOf(const std::map<int, double>& factors, int key) {
  const auto found = factors.find(key);
  return found == factors.end() ? 1 : found->second;
}

int RankOf(const Candidate& candidate, int pipe, int data, int model) {
  return (pipe * candidate.data + data) * candidate.model + model;
}

/// The factor by which the compute of a pipe rank of this replica is slower.
double SlowCompute(const Candidate& candidate, const Slowness& slowness, int pipe, int replica) {
  if (slowness.ranks.empty()) return 1;
  double factor = 0;
  for (int m = 0; m < candidate.model; ++m) {
    factor = std::max(factor, FactorOf(slowness.ranks, RankOf(candidate, pipe, replica, m)));
  }
  return factor;
}

/// Returns the slowness of each rank, multiplied by how many times as long its device takes as the
/// cluster's first kind of device.
Slowness WithAbilities(Slowness slowness, const Candidate& candidate, const Cluster& cluster) {
  if (cluster.abilities.empty()) return slowness;
  for (int rank = 0; rank < candidate.ranks(); ++rank) {
    const double pace = 1 / cluster.abilities[rank].speed;
    slowness.ranks[rank] = pace * FactorOf(slowness.ranks, rank);
  }
  return slowness;
}

double SlowLink(const Cluster& cluster, const Slowness& slowness, int a, int b) {
  const auto link = slowness.links.find({std::min(a, b), std::max(a, b)});
  double factor = link == slowness.links.end() ? 1 : link->second;
  const int nodes[] = {a / cluster.devices_per_node, b / cluster.devices_per_node};
  if (nodes[0] == nodes[1]) return factor;
  for (int node : nodes) factor = std::max(factor, FactorOf(slowness.nodes, node));
  return factor;
}

/// The factor by which messages between two pipe ranks of this replica are slower.
double SlowMessage(const Candidate& candidate, const Cluster& cluster, const Slowness& slowness,
                   int from, int to, int replica) {
  double factor = 1;
  for (int m = 0; m < candidate.model && !slowness.empty(); ++m) {
    factor = std::max(factor, SlowLink(cluster, slowness, RankOf(candidate, from, replica, m),
                                       RankOf(candidate, to, replica, m)));
  }
  return factor;
}

/// The factor by which the replicas' collectives are slower. They use the links between neighbours
/// in a ring.
double SlowReduction(const Candidate& candidate, const Cluster& cluster, const Slowness& slowness,
                     int pipe) {
  double factor = 1;
  if (slowness.links.empty() && slowness.nodes.empty()) return factor;
  for (int m = 0; m < candidate.model; ++m) {
    for (int d = 0; d < candidate.data; ++d) {
      factor = std::max(factor, SlowLink(cluster, slowness, RankOf(candidate, pipe, d, m),
                                         RankOf(candidate, pipe, (d + 1) % candidate.data, m)));
    }
  }
  return factor;
}

/// Bytes of the optimizer's state on each replica.
double StateBytes(const Candidate& candidate, const StageCost& stage, const Training& training) {
  const double state = static_cast<double>(stage.parameters) * training.state_bytes +
                       static_cast<double>(stage.extra_state_bytes);
  return std::max(state, 0.0) / (candidate.zero >= 1 ? candidate.data : 1);
}

/// The sums and updates of each stage, with what is slow.
std::vector<StageEnd> EndsOf(const Candidate& candidate, const std::vector<StageCost>& stages,
                             const Training& training, const Cluster& cluster,
                             const std::vector<int>& stage_ranks, const Slowness& slowness) {
  std::vector<StageEnd> ends;
  for (size_t s = 0; s < stages.size(); ++s) {
    const int rank = stage_ranks[s];
    StageEnd& end = ends.emplace_back(
        EndOf(candidate, stages[s], training, ReplicasOf(candidate, cluster, rank)));
    end.reduce *= SlowReduction(candidate, cluster, slowness, rank);
    double slowest = slowness.ranks.empty() ? 1 : 0;
    for (int d = 0; d < candidate.data && !slowness.ranks.empty(); ++d) {
      slowest = std::max(slowest, SlowCompute(candidate, slowness, rank, d));
    }
    end.update *= slowest;
  }
  return ends;
}

/// What each rank holds from step to step.
std::vector<RankMemory> Lasting(const Candidate& candidate, const std::vector<StageCost>& stages,
                                const Training& training, const std::vector<int>& stage_ranks) {
  std::vector<RankMemory> ranks(static_cast<size_t>(candidate.pipe));
  std::vector<double> state(ranks.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    const auto rank = static_cast<size_t>(stage_ranks[s]);
    ranks[rank].weights += stages[s].weight_bytes + stages[s].buffer_bytes;
    const int64_t bytes = stages[s].gradient_bytes;
    if (candidate.zero == 2 && candidate.data > 1) {
      const int64_t blocks = std::min(bytes, 2 * GradientBlockBytes());
      ranks[rank].late.push_back({.stage = static_cast<int>(s),
                                  .whole = bytes,
                                  .share = bytes / candidate.data,
                                  .first = blocks,
                                  .only = blocks});
    } else {
      ranks[rank].gradients += bytes;
    }
    state[rank] += StateBytes(candidate, stages[s], training);
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].rank = static_cast<int>(r);
    ranks[r].optimizer = static_cast<int64_t>(std::ceil(state[r]));
  }
  return ranks;
}

/// The seconds of actions and messages of each kind of replicas.
std::vector<schedule::Costs> CostsOfReplicas(const Candidate& candidate,
                                             const std::vector<StageCost>& stages,
                                             const Cluster& cluster,
                                             const std::vector<int>& stage_ranks,
                                             const Slowness& slowness) {
  std::vector<schedule::Costs> all;
  std::set<std::vector<double>> seen;
  for (int replica = 0; replica < (slowness.empty() ? 1 : candidate.data); ++replica) {
    schedule::Costs costs = NoCosts();
    costs.reduce = costs.step = costs.begin = {0};
    std::vector<double> kind;
    for (size_t s = 0; s < stages.size(); ++s) {
      const int rank = stage_ranks[s];
      const bool crosses = s + 1 < stages.size() && stage_ranks[s + 1] != rank;
      const int next = crosses ? stage_ranks[s + 1] : rank;
      kind.push_back(SlowCompute(candidate, slowness, rank, replica));
      AddCompute(stages[s], kind.back(), costs);
      kind.push_back(crosses ? SlowMessage(candidate, cluster, slowness, rank, next, replica) : 1);
      AddMessage(crosses ? PipeLink(candidate, cluster, rank, next) : LinkRates(), stages[s],
                 kind.back(), costs);
    }
    if (seen.insert(std::move(kind)).second) all.push_back(std::move(costs));
  }
  return all;
}

}  // namespace

const StageCost& StageOf(const Candidate& candidate, const StageTable& table, int stage) {
  const auto s = static_cast<size_t>(stage);
  return table.Of(candidate.bounds[s], candidate.bounds[s + 1]);
}

StageEnd EndOf(const Candidate& candidate, const StageCost& stage, const Training& training,
               const Group& replicas) {
  StageEnd end;
  end.update = static_cast<double>(stage.parameters) * training.update_seconds;
  if (candidate.data == 1) return end;
  const auto bytes = static_cast<double>(stage.gradient_bytes);
  end.sent = 2 * ShareSent(candidate.data, bytes);
  if (candidate.zero == 0) {
    end.reduce = AllReduceSeconds(replicas, bytes);
    return end;
  }
  // The gathered values are as many bytes as the gradients.
  end.reduce = 2 * HalfAllReduceSeconds(replicas, bytes);
  end.update /= candidate.data;
  return end;
}

bool SplitsBackward(const std::string& schedule) {
  static std::mutex mutex;
  static std::map<std::string, bool> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(schedule);
  if (found != known.end()) return found->second;
  schedule::Sizes sizes{.ranks = 2, .stages_per_rank = 1, .micro_batches = 4};
  if (!schedule::Fits(schedule, sizes)) sizes.stages_per_rank = 2;
  bool splits = false;
  const Program program = schedule::Generate(schedule, sizes);
  schedule::RowWalk(program).OverAll(
      [&](const Step& step) { splits |= step.part.kind == Kind::kInputGrad; });
  return known[schedule] = splits;
}

Program ProgramOf(const Candidate& candidate) {
  Program program = schedule::Generate(
      candidate.schedule, {.ranks = candidate.pipe,
                           .stages_per_rank = candidate.stages_per_rank,
                           .micro_batches = static_cast<int>(candidate.micro_batches)});
  if (candidate.recompute == Recompute::kNone) return program;
  std::vector<int> stages(static_cast<size_t>(candidate.stages()));
  std::iota(stages.begin(), stages.end(), 0);
  return AddRecomputation(std::move(program), stages);
}

LinkRates PipeLink(const Candidate& candidate, const Cluster& cluster, int from, int to) {
  const int replicas = candidate.data * candidate.model;
  // Links that are not measured depend on nodes only, so they repeat.
  const int distinct = cluster.links ? replicas : std::min(replicas, cluster.devices_per_node);
  LinkRates slowest;
  for (int k = 0; k < distinct; ++k) {
    slowest = slowest.SlowerOf(cluster.LinkOf(from * replicas + k, to * replicas + k));
  }
  return slowest;
}

Group ReplicasOf(const Candidate& candidate, const Cluster& cluster, int rank) {
  return cluster.GroupOf(rank * candidate.data * candidate.model, candidate.data, candidate.model);
}

double ModelBytes(const Candidate& candidate, const StageCost& stage, const Training& training) {
  // Gradients that come late need not exist when activations take most memory.
  const bool come_late = candidate.zero == 2 && candidate.data > 1;
  const int64_t bytes =
      stage.weight_bytes + stage.buffer_bytes + (come_late ? 0 : stage.gradient_bytes);
  return static_cast<double>(bytes) + StateBytes(candidate, stage, training);
}

Paces PacesOf(const Candidate& candidate, const Cluster& cluster) {
  Paces paces;
  const Slowness slowness = WithAbilities({}, candidate, cluster);
  for (int pipe = 0; pipe < candidate.pipe && !cluster.abilities.empty(); ++pipe) {
    double least = SlowCompute(candidate, slowness, pipe, 0), most = least;
    for (int d = 1; d < candidate.data; ++d) {
      const double pace = SlowCompute(candidate, slowness, pipe, d);
      least = std::min(least, pace);
      most = std::max(most, pace);
    }
    paces.least.push_back(least);
    paces.most.push_back(most);
  }
  return paces;
}

std::vector<double> MemoriesOf(const Candidate& candidate, const Cluster& cluster) {
  std::vector<double> memories;
  const int slice = candidate.data * candidate.model;
  for (int rank = 0; rank < candidate.ranks() && !cluster.abilities.empty(); ++rank) {
    const double memory = cluster.MemoryOf(rank);
    if (rank % slice == 0) memories.push_back(memory);
    memories.back() = std::min(memories.back(), memory);
  }
  return memories;
}

Placed PlacedOn(const Candidate& candidate, const StageTable& table, const Training& training,
                const Cluster& cluster, const std::vector<int>& stage_ranks, const Slowness& slow) {
  const Slowness slowness = WithAbilities(slow, candidate, cluster);
  STRATA_CHECK(static_cast<int>(candidate.bounds.size()) == candidate.stages() + 1 &&
               candidate.bounds.back() == table.layers())
      << candidate.stages() << " stages, " << candidate.bounds.size() << " bounds";
  Placed placed;
  for (int s = 0; s < candidate.stages(); ++s) {
    placed.stages.push_back(StageOf(candidate, table, s));
  }
  placed.replicas = CostsOfReplicas(candidate, placed.stages, cluster, stage_ranks, slowness);
  placed.ends = EndsOf(candidate, placed.stages, training, cluster, stage_ranks, slowness);
  if (training.clips) {
    placed.agree = AllReduceSeconds(cluster.GroupOf(0, candidate.ranks(), 1), sizeof(double));
  }
  placed.lasting = Lasting(candidate, placed.stages, training, stage_ranks);
  return placed;
}

}  // namespace strata::search
