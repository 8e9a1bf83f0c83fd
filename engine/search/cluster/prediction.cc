#include "engine/search/cluster/prediction.h"

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

namespace strata::predict {

using schedule::Kind;
using schedule::Program;
using schedule::Step;

namespace {

double FactorOf(const std::map<int, double>& factors, int key) {
  const auto found = factors.find(key);
  return found == factors.end() ? 1 : found->second;
}

int RankOf(const Choice& choice, int pipe, int data, int model) {
  return (pipe * choice.data + data) * choice.model + model;
}

/// How many times as long the compute of a rank of the pipe axis takes, of this replica.
double SlowCompute(const Choice& choice, const Slowness& slowness, int pipe, int replica) {
  double factor = 1;
  for (int m = 0; m < choice.model && !slowness.ranks.empty(); ++m) {
    factor = std::max(factor, FactorOf(slowness.ranks, RankOf(choice, pipe, replica, m)));
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

/// Of messages between two ranks of the pipe axis, of this replica.
double SlowMessage(const Choice& choice, const Cluster& cluster, const Slowness& slowness, int from,
                   int to, int replica) {
  double factor = 1;
  for (int m = 0; m < choice.model && !slowness.empty(); ++m) {
    factor = std::max(factor, SlowLink(cluster, slowness, RankOf(choice, from, replica, m),
                                       RankOf(choice, to, replica, m)));
  }
  return factor;
}

/// Of the replicas' collectives: neighbours in their order, the last and the first too.
double SlowReduction(const Choice& choice, const Cluster& cluster, const Slowness& slowness,
                     int pipe) {
  double factor = 1;
  if (slowness.links.empty() && slowness.nodes.empty()) return factor;
  for (int m = 0; m < choice.model; ++m) {
    for (int d = 0; d < choice.data; ++d) {
      factor = std::max(factor, SlowLink(cluster, slowness, RankOf(choice, pipe, d, m),
                                         RankOf(choice, pipe, (d + 1) % choice.data, m)));
    }
  }
  return factor;
}

/// When each stage's last W or B ends.
std::vector<double> GradientsReady(const Program& program, const schedule::Simulation& simulation) {
  std::vector<double> ready(static_cast<size_t>(program.stages()));
  schedule::RowWalk(program).OverAll([&](const Step& step) {
    if (!GivesWeightGrad(step.part.kind)) return;
    double& last = ready[step.stage()];
    last = std::max(last, simulation.times[step.rank][step.position].end);
  });
  return ready;
}

/// Reductions of a rank's stages start when their gradients are there, one after the other.
void AddReductions(const Choice& choice, const StageTable& table, const Training& training,
                   const Cluster& cluster, const Program& program, const Slowness& slowness,
                   const std::vector<double>& ready, Prediction& prediction) {
  for (int r = 0; r < choice.pipe; ++r) {
    RankPrediction& rank = prediction.ranks[r];
    const Group replicas = ReplicasOf(choice, cluster, r);
    const double slow = SlowReduction(choice, cluster, slowness, r);
    double slowest = 1;
    for (int d = 0; d < choice.data && !slowness.ranks.empty(); ++d) {
      slowest = std::max(slowest, SlowCompute(choice, slowness, r, d));
    }
    std::vector<int> stages = schedule::StagesOfRank(program, r);
    std::sort(stages.begin(), stages.end(), [&](int a, int b) { return ready[a] < ready[b]; });
    double now = 0;
    for (int stage : stages) {
      const Reduction reduction =
          ReductionOf(choice, StageOf(choice, table, stage), training, replicas);
      now = std::max(now, ready[stage]) + slow * reduction.seconds;
      rank.reduce += slow * reduction.seconds;
      rank.update += slowest * reduction.update;
      rank.sent_replicas += reduction.sent;
    }
    rank.end = std::max(now, rank.ready);
  }
}

void AddUpdates(const Choice& choice, const Training& training, const Cluster& cluster,
                Prediction& prediction) {
  double norm = 0;
  if (training.clips) {
    for (const RankPrediction& rank : prediction.ranks) norm = std::max(norm, rank.end);
    norm += AllReduceSeconds(cluster.GroupOf(0, choice.ranks(), 1), sizeof(double));
  }
  for (RankPrediction& rank : prediction.ranks) {
    rank.end = std::max(rank.end, norm) + rank.update;
    prediction.step = std::max(prediction.step, rank.end);
  }
}

void AddTraffic(const Choice& choice, const StageTable& table, const Program& program,
                Prediction& prediction) {
  const auto micro_batches = static_cast<double>(choice.micro_batches);
  for (int s = 0; s < program.stages(); ++s) {
    const int rank = program.stage_ranks[s];
    prediction.ranks[rank].sent_model +=
        StageOf(choice, table, s).work().axis_bytes * micro_batches;
  }
  for (int s = 0; s + 1 < program.stages(); ++s) {
    if (!program.crosses_after(s)) continue;
    const double bytes = StageOf(choice, table, s).output_bytes * micro_batches;
    for (int end : {s, s + 1}) {  // activations there, gradients back
      const int rank = program.stage_ranks[end];
      prediction.ranks[rank].sent_messages += bytes;
    }
  }
}

void AddMemory(const Choice& choice, const StageTable& table, const Training& training,
               const Program& program, Prediction& prediction) {
  std::vector<StageCost> stages;
  for (int s = 0; s < program.stages(); ++s) {
    const StageCost& stage = stages.emplace_back(StageOf(choice, table, s));
    const int rank = program.stage_ranks[s];
    prediction.ranks[rank].model_bytes += ModelBytes(choice, stage, training);
  }
  const std::vector<RowPeak> peaks = PeaksOfRows(program, stages);
  for (size_t r = 0; r < prediction.ranks.size(); ++r) {
    RankPrediction& rank = prediction.ranks[r];
    rank.activations = static_cast<double>(peaks[r].activations + peaks[r].buffers);
    rank.memory = rank.model_bytes + rank.activations;
    prediction.memory = std::max(prediction.memory, rank.memory);
  }
}

double RecomputeSeconds(const Choice& choice, const StageTable& table, const Program& program) {
  std::vector<double> seconds(static_cast<size_t>(choice.pipe));
  for (int s = 0; s < program.stages(); ++s) {
    seconds[program.stage_ranks[s]] +=
        StageOf(choice, table, s).recompute.seconds * static_cast<double>(choice.micro_batches);
  }
  return *std::max_element(seconds.begin(), seconds.end());
}

}  // namespace

const StageCost& StageOf(const Choice& choice, const StageTable& table, int stage) {
  const auto s = static_cast<size_t>(stage);
  return table.Of(choice.bounds[s], choice.bounds[s + 1]);
}

Reduction ReductionOf(const Choice& choice, const StageCost& stage, const Training& training,
                      const Group& replicas) {
  Reduction reduction;
  reduction.update = stage.parameters * training.update_seconds;
  if (choice.data == 1) return reduction;
  reduction.sent = 2 * ShareSent(choice.data, stage.gradient_bytes);
  if (choice.zero == 0) {
    reduction.seconds = AllReduceSeconds(replicas, stage.gradient_bytes);
    return reduction;
  }
  // Values are as many bytes as gradients.
  reduction.seconds = 2 * HalfAllReduceSeconds(replicas, stage.gradient_bytes);
  reduction.update /= choice.data;
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

Program ProgramOf(const Choice& choice) {
  Program program = schedule::Generate(choice.schedule,
                                       {.ranks = choice.pipe,
                                        .stages_per_rank = choice.stages_per_rank,
                                        .micro_batches = static_cast<int>(choice.micro_batches)});
  if (choice.recompute == Recompute::kNone) return program;
  std::vector<int> stages(static_cast<size_t>(choice.stages()));
  std::iota(stages.begin(), stages.end(), 0);
  return AddRecomputation(std::move(program), stages);
}

LinkRates PipeLink(const Choice& choice, const Cluster& cluster, int from, int to) {
  const int replicas = choice.data * choice.model;
  LinkRates slowest;
  for (int k = 0; k < replicas; ++k) {
    slowest = slowest.SlowerOf(cluster.LinkOf(from * replicas + k, to * replicas + k));
  }
  return slowest;
}

Group ReplicasOf(const Choice& choice, const Cluster& cluster, int rank) {
  return cluster.GroupOf(rank * choice.data * choice.model, choice.data, choice.model);
}

schedule::Costs ClusterCosts(const Choice& choice, const StageTable& table, const Cluster& cluster,
                             const std::vector<int>& stage_ranks, const Slowness& slowness,
                             int replica) {
  schedule::Costs costs = NoCosts();
  costs.reduce = costs.step = costs.begin = {0};
  for (int s = 0; s < choice.stages(); ++s) {
    const StageCost& stage = StageOf(choice, table, s);
    const int rank = stage_ranks[s];
    AddCompute(stage, SlowCompute(choice, slowness, rank, replica), costs);
    const auto next = static_cast<size_t>(s) + 1;
    const bool crosses = next < stage_ranks.size() && stage_ranks[next] != rank;
    const LinkRates link =
        crosses ? PipeLink(choice, cluster, rank, stage_ranks[next]) : LinkRates();
    const double slow =
        crosses ? SlowMessage(choice, cluster, slowness, rank, stage_ranks[next], replica) : 1;
    AddMessage(link, stage, slow, costs);
  }
  return costs;
}

double ModelBytes(const Choice& choice, const StageCost& stage, const Training& training) {
  const int shares = choice.zero >= 1 ? choice.data : 1;
  const int64_t bytes = stage.weight_bytes + stage.buffer_bytes + stage.gradient_bytes;
  const double state = static_cast<double>(stage.parameters) * training.state_bytes +
                       static_cast<double>(stage.extra_state_bytes);
  return static_cast<double>(bytes) + std::max(state, 0.0) / shares;
}

Prediction PredictStep(const Choice& choice, const StageTable& table, const Training& training,
                       const Cluster& cluster, const Program& program, const Slowness& slowness) {
  STRATA_CHECK(static_cast<int>(choice.bounds.size()) == choice.stages() + 1 &&
               choice.bounds.back() == table.layers())
      << choice.stages() << " stages, " << choice.bounds.size() << " bounds";
  Prediction prediction;
  prediction.ranks.resize(static_cast<size_t>(choice.pipe));
  prediction.recompute = RecomputeSeconds(choice, table, program);
  // Replicas that are alike are simulated once.
  std::set<std::vector<double>> seen;
  std::vector<double> ready(static_cast<size_t>(choice.stages()));
  for (int replica = 0; replica < (slowness.empty() ? 1 : choice.data); ++replica) {
    const schedule::Costs costs =
        ClusterCosts(choice, table, cluster, program.stage_ranks, slowness, replica);
    std::vector<double> kind = costs.forward;
    kind.insert(kind.end(), costs.weight_grad.begin(), costs.weight_grad.end());
    kind.insert(kind.end(), costs.transfer.begin(), costs.transfer.end());
    kind.insert(kind.end(), costs.latency.begin(), costs.latency.end());
    if (!seen.insert(std::move(kind)).second) continue;
    const schedule::Simulation simulation = Simulate(program, costs);
    const std::vector<double> gradients = GradientsReady(program, simulation);
    for (size_t s = 0; s < ready.size(); ++s) ready[s] = std::max(ready[s], gradients[s]);
    if (simulation.makespan < prediction.pipeline) continue;
    prediction.pipeline = simulation.makespan;
    prediction.bubble = simulation.bubble;
    for (size_t r = 0; r < prediction.ranks.size(); ++r) {
      RankPrediction& rank = prediction.ranks[r];
      rank.busy = simulation.busy[r];
      if (!simulation.times[r].empty()) rank.ready = simulation.times[r].back().end;
    }
  }
  AddReductions(choice, table, training, cluster, program, slowness, ready, prediction);
  AddUpdates(choice, training, cluster, prediction);
  AddTraffic(choice, table, program, prediction);
  AddMemory(choice, table, training, program, prediction);
  return prediction;
}

}  // namespace strata::predict
