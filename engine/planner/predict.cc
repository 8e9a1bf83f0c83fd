#include "engine/planner/predict.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>

#include "engine/base/check.h"
#include "engine/plan/stage_map.h"
#include "engine/schedule/generators.h"
#include "engine/schedule/lowering.h"

namespace strata::planner {

using schedule::Action;
using schedule::Kind;
using schedule::Parts;
using schedule::Program;

namespace {

const StageLoad& LoadOf(const Choice& choice, const StageTable& table, int stage) {
  const auto s = static_cast<size_t>(stage);
  return table.Of(choice.bounds[s], choice.bounds[s + 1]);
}

double At(const std::vector<double>& factors, int stage) {
  return factors.empty() ? 1 : factors[static_cast<size_t>(stage)];
}

/// The bytes of a rank's activations while it runs its row.
class Tide {
 public:
  Tide(const Choice& choice, const StageTable& table) : choice_(choice), table_(table) {}

  void Run(const Action& action) {
    double during = now_, after = now_;
    for (const Action& part : Parts(action)) {
      if (!IsCompute(part.kind)) continue;
      const StageLoad& load = LoadOf(choice_, table_, part.stage);
      const double held = load.kept + load.recomputed;
      switch (part.kind) {
        case Kind::kForward:
          during += load.forward_peak;
          after += load.kept;
          break;
        case Kind::kRecompute:
          during += load.recomputed;
          after += load.recomputed;
          break;
        case Kind::kBackward:
          during += std::max(0.0, load.backward_peak - held);
          after -= held;
          break;
        case Kind::kInputGrad:
          during += std::max(0.0, load.backward_peak - held);
          after += load.deferred - held;
          break;
        case Kind::kWeightGrad:
          after -= load.deferred;
          break;
        default:
          break;
      }
    }
    highest_ = std::max({highest_, during, after});
    now_ = after;
  }

  double highest() const { return highest_; }

 private:
  const Choice& choice_;
  const StageTable& table_;
  double now_ = 0;
  double highest_ = 0;
};

/// Of a stage that has its gradients: what follows between replicas, and what each sends for it.
struct Reduction {
  double seconds = 0;
  double sent = 0;
  double update = 0;
};

Reduction ReductionOf(const Choice& choice, const StageLoad& load, const Training& training,
                      const Group& replicas) {
  Reduction reduction;
  reduction.update = load.parameters * training.update_seconds;
  if (choice.data == 1) return reduction;
  reduction.sent = 2 * ShareSent(choice.data, load.gradients);
  if (choice.zero == 0) {
    reduction.seconds = AllReduceSeconds(replicas, load.gradients);
    return reduction;
  }
  // Values are as many bytes as gradients.
  reduction.seconds =
      ReduceScatterSeconds(replicas, load.gradients) + AllGatherSeconds(replicas, load.gradients);
  reduction.update /= choice.data;
  return reduction;
}

/// When each stage's last W or B ends.
std::vector<double> GradientsReady(const Program& program, const schedule::Simulation& simulation) {
  std::vector<double> ready(static_cast<size_t>(program.stages()));
  for (size_t r = 0; r < program.rows.size(); ++r) {
    for (size_t i = 0; i < program.rows[r].size(); ++i) {
      for (const Action& part : Parts(program.rows[r][i])) {
        if (!GivesWeightGrad(part.kind)) continue;
        double& last = ready[static_cast<size_t>(part.stage)];
        last = std::max(last, simulation.times[r][i].end);
      }
    }
  }
  return ready;
}

/// Reductions of a rank's stages start when their gradients are there, one after the other.
void AddReductions(const Choice& choice, const StageTable& table, const Training& training,
                   const Cluster& cluster, const Program& program, const std::vector<double>& ready,
                   Prediction& prediction) {
  for (int r = 0; r < choice.pipe; ++r) {
    RankPrediction& rank = prediction.ranks[static_cast<size_t>(r)];
    const Group replicas = ReplicasOf(choice, cluster, r);
    std::vector<int> stages = schedule::StagesOfRank(program, r);
    std::sort(stages.begin(), stages.end(), [&](int a, int b) {
      return ready[static_cast<size_t>(a)] < ready[static_cast<size_t>(b)];
    });
    double now = 0;
    for (int stage : stages) {
      const Reduction reduction =
          ReductionOf(choice, LoadOf(choice, table, stage), training, replicas);
      now = std::max(now, ready[static_cast<size_t>(stage)]) + reduction.seconds;
      rank.reduce += reduction.seconds;
      rank.update += reduction.update;
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
  for (int s = 0; s + 1 < program.stages(); ++s) {
    if (!program.crosses_after(s)) continue;
    const double bytes =
        LoadOf(choice, table, s).output * static_cast<double>(choice.micro_batches);
    for (int end : {s, s + 1}) {  // activations there, gradients back
      const int rank = program.stage_ranks[static_cast<size_t>(end)];
      prediction.ranks[static_cast<size_t>(rank)].sent_messages += bytes;
    }
  }
}

void AddMemory(const Choice& choice, const StageTable& table, const Training& training,
               const Program& program, Prediction& prediction) {
  const std::vector<double> activations = ActivationBytes(choice, table, program);
  for (int s = 0; s < program.stages(); ++s) {
    const int rank = program.stage_ranks[static_cast<size_t>(s)];
    prediction.ranks[static_cast<size_t>(rank)].model_bytes +=
        ModelBytes(choice, LoadOf(choice, table, s), training);
  }
  for (size_t r = 0; r < prediction.ranks.size(); ++r) {
    RankPrediction& rank = prediction.ranks[r];
    rank.activations = activations[r];
    rank.memory = rank.model_bytes + rank.activations;
    prediction.memory = std::max(prediction.memory, rank.memory);
  }
}

double RecomputeSeconds(const Choice& choice, const StageTable& table, const Program& program) {
  std::vector<double> seconds(static_cast<size_t>(choice.pipe));
  for (int s = 0; s < program.stages(); ++s) {
    seconds[static_cast<size_t>(program.stage_ranks[static_cast<size_t>(s)])] +=
        LoadOf(choice, table, s).recompute * static_cast<double>(choice.micro_batches);
  }
  return *std::max_element(seconds.begin(), seconds.end());
}

}  // namespace

bool SplitsBackward(const std::string& schedule) {
  static std::mutex mutex;
  static std::map<std::string, bool> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(schedule);
  if (found != known.end()) return found->second;
  schedule::Sizes sizes{.ranks = 2, .stages_per_rank = 1, .micro_batches = 4};
  if (!schedule::Fits(schedule, sizes)) sizes.stages_per_rank = 2;
  bool splits = false;
  for (const auto& row : schedule::Generate(schedule, sizes).rows) {
    for (const Action& action : row) {
      for (const Action& part : Parts(action)) splits |= part.kind == Kind::kInputGrad;
    }
  }
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

const Link& PipeLink(const Choice& choice, const Cluster& cluster, int from, int to) {
  const int replicas = choice.data * choice.model;
  for (int k = 0; k < replicas; ++k) {
    const Link& link = cluster.LinkOf(from * replicas + k, to * replicas + k);
    if (&link == &cluster.between) return link;
  }
  return cluster.within;
}

Group ReplicasOf(const Choice& choice, const Cluster& cluster, int rank) {
  return cluster.GroupOf(rank * choice.data * choice.model, choice.data, choice.model);
}

schedule::Costs StepCosts(const Choice& choice, const StageTable& table, const Cluster& cluster,
                          const std::vector<int>& stage_ranks,
                          const std::vector<double>& slow_stages,
                          const std::vector<double>& slow_messages) {
  schedule::Costs costs;
  costs.forward.clear(), costs.input_grad.clear(), costs.weight_grad.clear();
  costs.transfer.clear();
  for (int s = 0; s < choice.stages(); ++s) {
    const StageLoad& load = LoadOf(choice, table, s);
    const double slow = At(slow_stages, s);
    costs.forward.push_back(slow * load.forward);
    costs.input_grad.push_back(slow * load.input_grad);
    costs.weight_grad.push_back(slow * load.weight_grad);
    costs.recompute.push_back(slow * load.recompute);
    const auto next = static_cast<size_t>(s) + 1;
    const bool crosses =
        next < stage_ranks.size() && stage_ranks[next] != stage_ranks[static_cast<size_t>(s)];
    if (!crosses) {
      costs.transfer.push_back(0);
      continue;
    }
    const Link& link =
        PipeLink(choice, cluster, stage_ranks[static_cast<size_t>(s)], stage_ranks[next]);
    costs.comm = std::max(costs.comm, link.latency);
    costs.transfer.push_back(At(slow_messages, s) *
                             (MessageSeconds(link, load.output) - link.latency));
  }
  return costs;
}

std::vector<double> ActivationBytes(const Choice& choice, const StageTable& table,
                                    const Program& program) {
  std::vector<double> bytes;
  for (const auto& row : program.rows) {
    Tide tide(choice, table);
    for (const Action& action : row) tide.Run(action);
    bytes.push_back(tide.highest());
  }
  return bytes;
}

double ModelBytes(const Choice& choice, const StageLoad& load, const Training& training) {
  const int shares = choice.zero >= 1 ? choice.data : 1;
  return load.weights + load.gradients + load.parameters * training.state_bytes / shares;
}

Prediction Predict(const Choice& choice, const StageTable& table, const Training& training,
                   const Cluster& cluster, const Program& program) {
  STRATA_CHECK(static_cast<int>(choice.bounds.size()) == choice.stages() + 1 &&
               choice.bounds.back() == table.layers())
      << choice.stages() << " stages, " << choice.bounds.size() << " bounds";
  const schedule::Simulation simulation =
      Simulate(program, StepCosts(choice, table, cluster, program.stage_ranks));
  Prediction prediction;
  prediction.ranks.resize(static_cast<size_t>(choice.pipe));
  prediction.pipeline = simulation.makespan;
  prediction.bubble = simulation.bubble;
  prediction.recompute = RecomputeSeconds(choice, table, program);
  for (size_t r = 0; r < prediction.ranks.size(); ++r) {
    RankPrediction& rank = prediction.ranks[r];
    rank.busy = simulation.busy[r];
    if (!simulation.times[r].empty()) rank.ready = simulation.times[r].back().end;
  }
  AddReductions(choice, table, training, cluster, program, GradientsReady(program, simulation),
                prediction);
  AddUpdates(choice, training, cluster, prediction);
  AddTraffic(choice, table, program, prediction);
  AddMemory(choice, table, training, program, prediction);
  return prediction;
}

Prediction Predict(const Choice& choice, const StageTable& table, const Training& training,
                   const Cluster& cluster) {
  return Predict(choice, table, training, cluster, ProgramOf(choice));
}

}  // namespace strata::planner
