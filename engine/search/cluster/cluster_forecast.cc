#include "engine/search/cluster/cluster_forecast.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include "engine/base/check.h"
#include "engine/forecast/memory_forecast.h"
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
  double factor = 1;
  for (int m = 0; m < candidate.model && !slowness.ranks.empty(); ++m) {
    factor = std::max(factor, FactorOf(slowness.ranks, RankOf(candidate, pipe, replica, m)));
  }
  return factor;
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

/// The second at which the last W or B of each stage ends.
std::vector<double> GradientsReady(const Program& program, const schedule::Simulation& simulation) {
  std::vector<double> ready(static_cast<size_t>(program.stages()));
  schedule::RowWalk(program).OverAll([&](const Step& step) {
    if (!GivesWeightGrad(step.part.kind)) return;
    double& last = ready[step.stage()];
    last = std::max(last, simulation.times[step.rank][step.position].end);
  });
  return ready;
}

/// Adds the reductions of each rank's stages. A reduction starts when the stage's gradients are
/// complete and the rank's previous reduction has ended.
void AddReductions(const Candidate& candidate, const StageTable& table, const Training& training,
                   const Cluster& cluster, const Program& program, const Slowness& slowness,
                   const std::vector<double>& ready, ClusterForecast& forecast) {
  for (int r = 0; r < candidate.pipe; ++r) {
    RankForecast& rank = forecast.ranks[r];
    const Group replicas = ReplicasOf(candidate, cluster, r);
    const double slow = SlowReduction(candidate, cluster, slowness, r);
    double slowest = 1;
    for (int d = 0; d < candidate.data && !slowness.ranks.empty(); ++d) {
      slowest = std::max(slowest, SlowCompute(candidate, slowness, r, d));
    }
    std::vector<int> stages = schedule::StagesOfRank(program, r);
    std::sort(stages.begin(), stages.end(), [&](int a, int b) { return ready[a] < ready[b]; });
    double now = 0;
    for (int stage : stages) {
      const Reduction reduction =
          ReductionOf(candidate, StageOf(candidate, table, stage), training, replicas);
      now = std::max(now, ready[stage]) + slow * reduction.seconds;
      rank.reduce += slow * reduction.seconds;
      rank.update += slowest * reduction.update;
      rank.sent_replicas += reduction.sent;
    }
    rank.end = std::max(now, rank.ready);
  }
}

void AddUpdates(const Candidate& candidate, const Training& training, const Cluster& cluster,
                ClusterForecast& forecast) {
  double norm = 0;
  if (training.clips) {
    for (const RankForecast& rank : forecast.ranks) norm = std::max(norm, rank.end);
    norm += AllReduceSeconds(cluster.GroupOf(0, candidate.ranks(), 1), sizeof(double));
  }
  for (RankForecast& rank : forecast.ranks) {
    rank.end = std::max(rank.end, norm) + rank.update;
    forecast.step = std::max(forecast.step, rank.end);
  }
}

void AddTraffic(const Candidate& candidate, const StageTable& table, const Program& program,
                ClusterForecast& forecast) {
  const auto micro_batches = static_cast<double>(candidate.micro_batches);
  for (int s = 0; s < program.stages(); ++s) {
    const int rank = program.stage_ranks[s];
    forecast.ranks[rank].sent_model +=
        StageOf(candidate, table, s).work().axis_bytes * micro_batches;
  }
  for (int s = 0; s + 1 < program.stages(); ++s) {
    if (!program.crosses_after(s)) continue;
    const double bytes = StageOf(candidate, table, s).output_bytes * micro_batches;
    for (int end : {s, s + 1}) {  // activations forward, gradients back
      const int rank = program.stage_ranks[end];
      forecast.ranks[rank].sent_messages += bytes;
    }
  }
}

void AddMemory(const Candidate& candidate, const StageTable& table, const Training& training,
               const Program& program, ClusterForecast& forecast) {
  std::vector<StageCost> stages;
  for (int s = 0; s < program.stages(); ++s) {
    const StageCost& stage = stages.emplace_back(StageOf(candidate, table, s));
    const int rank = program.stage_ranks[s];
    forecast.ranks[rank].model_bytes += ModelBytes(candidate, stage, training);
  }
  const std::vector<RowPeak> peaks = PeaksOfRows(program, stages);
  for (size_t r = 0; r < forecast.ranks.size(); ++r) {
    RankForecast& rank = forecast.ranks[r];
    rank.activations = static_cast<double>(peaks[r].activations + peaks[r].buffers);
    rank.memory = rank.model_bytes + rank.activations;
    forecast.memory = std::max(forecast.memory, rank.memory);
  }
}

double RecomputeSeconds(const Candidate& candidate, const StageTable& table,
                        const Program& program) {
  std::vector<double> seconds(static_cast<size_t>(candidate.pipe));
  for (int s = 0; s < program.stages(); ++s) {
    seconds[program.stage_ranks[s]] += StageOf(candidate, table, s).recompute.seconds *
                                       static_cast<double>(candidate.micro_batches);
  }
  return *std::max_element(seconds.begin(), seconds.end());
}

}  // namespace

const StageCost& StageOf(const Candidate& candidate, const StageTable& table, int stage) {
  const auto s = static_cast<size_t>(stage);
  return table.Of(candidate.bounds[s], candidate.bounds[s + 1]);
}

Reduction ReductionOf(const Candidate& candidate, const StageCost& stage, const Training& training,
                      const Group& replicas) {
  Reduction reduction;
  reduction.update = stage.parameters * training.update_seconds;
  if (candidate.data == 1) return reduction;
  reduction.sent = 2 * ShareSent(candidate.data, stage.gradient_bytes);
  if (candidate.zero == 0) {
    reduction.seconds = AllReduceSeconds(replicas, stage.gradient_bytes);
    return reduction;
  }
  // The gathered values are as many bytes as the gradients.
  reduction.seconds = 2 * HalfAllReduceSeconds(replicas, stage.gradient_bytes);
  reduction.update /= candidate.data;
  return reduction;
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
  LinkRates slowest;
  for (int k = 0; k < replicas; ++k) {
    slowest = slowest.SlowerOf(cluster.LinkOf(from * replicas + k, to * replicas + k));
  }
  return slowest;
}

Group ReplicasOf(const Candidate& candidate, const Cluster& cluster, int rank) {
  return cluster.GroupOf(rank * candidate.data * candidate.model, candidate.data, candidate.model);
}

schedule::Costs ClusterCosts(const Candidate& candidate, const StageTable& table,
                             const Cluster& cluster, const std::vector<int>& stage_ranks,
                             const Slowness& slowness, int replica) {
  schedule::Costs costs = NoCosts();
  costs.reduce = costs.step = costs.begin = {0};
  for (int s = 0; s < candidate.stages(); ++s) {
    const StageCost& stage = StageOf(candidate, table, s);
    const int rank = stage_ranks[s];
    AddCompute(stage, SlowCompute(candidate, slowness, rank, replica), costs);
    const auto next = static_cast<size_t>(s) + 1;
    const bool crosses = next < stage_ranks.size() && stage_ranks[next] != rank;
    const LinkRates link =
        crosses ? PipeLink(candidate, cluster, rank, stage_ranks[next]) : LinkRates();
    const double slow =
        crosses ? SlowMessage(candidate, cluster, slowness, rank, stage_ranks[next], replica) : 1;
    AddMessage(link, stage, slow, costs);
  }
  return costs;
}

double ModelBytes(const Candidate& candidate, const StageCost& stage, const Training& training) {
  const int shares = candidate.zero >= 1 ? candidate.data : 1;
  const int64_t bytes = stage.weight_bytes + stage.buffer_bytes + stage.gradient_bytes;
  const double state = static_cast<double>(stage.parameters) * training.state_bytes +
                       static_cast<double>(stage.extra_state_bytes);
  return static_cast<double>(bytes) + std::max(state, 0.0) / shares;
}

ClusterForecast ForecastClusterStep(const Candidate& candidate, const StageTable& table,
                                    const Training& training, const Cluster& cluster,
                                    const Program& program, const Slowness& slowness) {
  STRATA_CHECK(static_cast<int>(candidate.bounds.size()) == candidate.stages() + 1 &&
               candidate.bounds.back() == table.layers())
      << candidate.stages() << " stages, " << candidate.bounds.size() << " bounds";
  ClusterForecast forecast;
  forecast.ranks.resize(static_cast<size_t>(candidate.pipe));
  forecast.recompute = RecomputeSeconds(candidate, table, program);
  // Replicas with the same costs are simulated only once.
  std::set<std::vector<double>> seen;
  std::vector<double> ready(static_cast<size_t>(candidate.stages()));
  for (int replica = 0; replica < (slowness.empty() ? 1 : candidate.data); ++replica) {
    const schedule::Costs costs =
        ClusterCosts(candidate, table, cluster, program.stage_ranks, slowness, replica);
    std::vector<double> kind = costs.forward;
    kind.insert(kind.end(), costs.weight_grad.begin(), costs.weight_grad.end());
    kind.insert(kind.end(), costs.transfer.begin(), costs.transfer.end());
    kind.insert(kind.end(), costs.latency.begin(), costs.latency.end());
    if (!seen.insert(std::move(kind)).second) continue;
    const schedule::Simulation simulation = Simulate(program, costs);
    const std::vector<double> gradients = GradientsReady(program, simulation);
    for (size_t s = 0; s < ready.size(); ++s) ready[s] = std::max(ready[s], gradients[s]);
    if (simulation.makespan < forecast.pipeline) continue;
    forecast.pipeline = simulation.makespan;
    forecast.bubble = simulation.bubble;
    for (size_t r = 0; r < forecast.ranks.size(); ++r) {
      RankForecast& rank = forecast.ranks[r];
      rank.busy = simulation.busy[r];
      if (!simulation.times[r].empty()) rank.ready = simulation.times[r].back().end;
    }
  }
  AddReductions(candidate, table, training, cluster, program, slowness, ready, forecast);
  AddUpdates(candidate, training, cluster, forecast);
  AddTraffic(candidate, table, program, forecast);
  AddMemory(candidate, table, training, program, forecast);
  return forecast;
}

}  // namespace strata::search
