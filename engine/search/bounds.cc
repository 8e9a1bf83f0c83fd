#include "engine/search/bounds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

#include "engine/schedule/generators/generators.h"
#include "engine/schedule/row_walk.h"

namespace strata::predict {
namespace {

Group WithoutLatency(Group group) {
  group.within.latency = group.between.latency = 0;
  return group;
}

/// Of all layers; where links were measured, by the replicas that are nearest to each other.
Reduction LeastReduction(const Choice& choice, const StageCost& total, const Training& training,
                         const Cluster& cluster) {
  const auto of_rank = [&](int rank) {
    return ReductionOf(choice, total, training, WithoutLatency(ReplicasOf(choice, cluster, rank)));
  };
  Reduction least = of_rank(0);
  for (int rank = 1; cluster.links && rank < choice.pipe; ++rank) {
    const Reduction other = of_rank(rank);
    if (other.seconds < least.seconds) least = other;
  }
  return least;
}

/// The least share of a layer's seconds that delays the ranks behind it.
double LeastHeadShare(const StageTable& table, bool splits) {
  double least = 1;
  for (int i = 0; i < table.layers(); ++i) {
    const StageCost& stage = table.Of(i, i + 1);
    const double head = stage.forward.seconds + (splits ? 0 : stage.backward_seconds());
    if (stage.seconds() > 0) least = std::min(least, head / stage.seconds());
  }
  return least;
}

/// Ranks r = 0, 1, ... with work x_r for each of M micro-batches, W in all, of which the share h
/// delays those behind, as does each message between: T >= h (x_0 + ... + x_(r-1)) + r m + M x_r.
/// The least T has equality for all r: what a rank leaves of T falls by the factor q = 1 - h / M
/// from rank to rank, but for messages, so that
///   T (1 - q^P) = h W + h / M * m * (sum over r of r q^(P-1-r)).
double WaitingStep(double work, double share, double message, double micro_batches, int pipe) {
  if (share < 1e-9) return micro_batches * work / pipe;
  const double q = 1 - share / micro_batches;
  double power = 1, waits = 0;  // power: q^(P-1-r)
  for (int r = pipe - 1; r >= 0; --r, power *= q) waits += r * power;
  if (power >= 1) return micro_batches * work / pipe;
  return share * (work + message * waits / micro_batches) / (1 - power);
}

/// Per stage, by what rows do.
std::vector<int> LiveOf(const schedule::Program& program) {
  std::vector<int> live(static_cast<size_t>(program.stages())), now = live;
  const schedule::RowWalk walk(program);
  for (int rank = 0; rank < program.ranks(); ++rank) {
    int alive = 0, most = 0;
    walk.Over(rank, [&](const schedule::Step& step) {
      const auto change = static_cast<int>(step.Change({.kept = 1}));
      alive += change;
      now[step.stage()] += change;
      if (!step.ends_action || alive <= most) return;
      most = alive;
      for (int stage : schedule::StagesOfRank(program, rank)) {
        live[stage] = now[stage];
      }
    });
  }
  return live;
}

}  // namespace

double MessageAtLeast(const Choice& choice, const StageTable& table, const Cluster& cluster) {
  if (choice.pipe == 1) return 0;
  int64_t least = table.Of(0, 1).output_bytes;
  for (int i = 1; i + 1 < table.layers(); ++i)
    least = std::min(least, table.Of(i, i + 1).output_bytes);
  double seconds = 0;
  for (int r = 0; r + 1 < choice.pipe; ++r) {
    const double message = PipeLink(choice, cluster, r, r + 1).Seconds(static_cast<double>(least));
    seconds = r == 0 ? message : std::min(seconds, message);
  }
  return seconds;
}

double StepAtLeast(const Choice& choice, const StageTable& table, const Training& training,
                   const Cluster& cluster) {
  const StageCost& total = table.total();
  const auto micro_batches = static_cast<double>(choice.micro_batches);
  const auto [reduce, sent, update] = LeastReduction(choice, total, training, cluster);
  const bool splits = SplitsBackward(choice.schedule);
  const double message = MessageAtLeast(choice, table, cluster);
  const double ways = splits ? message : 2 * message;  // of a rank that waits, for each before it
  // Means over the ranks. One of several stages reduces one while it works on another.
  const double busy = micro_batches * total.seconds() + ways * choice.pipe * (choice.pipe - 1) / 2;
  const double tail =
      (choice.stages_per_rank == 1 ? busy + reduce : std::max(busy, reduce)) + update;
  // A micro-batch's way.
  const double back = splits ? total.input_grad.seconds : total.backward_seconds();
  const double way = total.forward.seconds + back + 2 * message * (choice.pipe - 1);
  const double step = std::max(tail / choice.pipe, way);
  if (choice.stages_per_rank > 1) return step;
  return std::max(step, WaitingStep(total.seconds(), LeastHeadShare(table, splits), ways,
                                    micro_batches, choice.pipe));
}

CutStep::CutStep(const Choice& choice, const StageTable& table, const Training& training,
                 const Cluster& cluster)
    : choice_(choice),
      table_(table),
      training_(training),
      splits_(SplitsBackward(choice.schedule)),
      stage_ranks_(schedule::StageMap(choice.schedule, choice.pipe, choice.stages_per_rank)),
      ranks_(static_cast<size_t>(choice.pipe)) {
  for (int r = 0; r < choice.pipe; ++r) {
    ranks_[r].replicas = ReplicasOf(choice, cluster, r);
  }
  for (size_t s = 0; s + 1 < stage_ranks_.size(); ++s) {
    const bool crosses = stage_ranks_[s] != stage_ranks_[s + 1];
    links_.push_back(crosses ? PipeLink(choice, cluster, stage_ranks_[s], stage_ranks_[s + 1])
                             : LinkRates());
  }
  links_.emplace_back();  // behind the last stage
}

double CutStep::AtLeast(const std::vector<int>& bounds) {
  const auto micro_batches = static_cast<double>(choice_.micro_batches);
  for (Rank& rank : ranks_) rank.work = rank.reduce = rank.update = rank.drain = 0, rank.head = -1;
  double head = 0, drain = 0, link = 0;
  for (size_t s = 0; s < stage_ranks_.size(); ++s) {
    Rank& rank = ranks_[stage_ranks_[s]];
    const StageCost& stage = table_.Of(bounds[s], bounds[s + 1]);
    const auto [reduce, sent, update] = ReductionOf(choice_, stage, training_, rank.replicas);
    const bool is_first = rank.head < 0;
    rank.work += micro_batches * stage.seconds();
    rank.update += update;
    rank.reduce = is_first ? reduce : std::min(rank.reduce, reduce);
    if (is_first) rank.head = head, rank.drain = drain;
    head += stage.forward.seconds;
    drain += splits_ ? stage.input_grad.seconds : stage.backward_seconds();
    if (!links_[s].takes_time()) continue;
    const double transfer = links_[s].Transfer(stage.output_bytes);
    head += links_[s].latency + transfer;
    drain += links_[s].latency + transfer;
    link = std::max(link, micro_batches * transfer);
  }
  const double first_tail = ranks_[0].reduce + ranks_[0].update;
  double step = std::max(head + drain + first_tail, link);
  for (const Rank& rank : ranks_) {
    const double done = rank.head + rank.work;
    step = std::max(step, done + rank.reduce + rank.update);
    if (!splits_) step = std::max(step, done + rank.drain + first_tail);
  }
  return step;
}

std::vector<int> LiveAtLeast(const Choice& choice) {
  const bool holds_all = choice.schedule == "gpipe" || choice.schedule == "looped_bfs";
  if (holds_all) {
    return std::vector<int>(static_cast<size_t>(choice.stages()),
                            static_cast<int>(choice.micro_batches));
  }
  // More micro-batches change nothing, but for larger groups where ranks do not divide them.
  const int64_t groups = std::min<int64_t>(choice.micro_batches / choice.pipe, 2);
  const auto micro_batches =
      static_cast<int>(groups > 0 ? groups * choice.pipe : choice.micro_batches);
  using Key = std::tuple<std::string, int, int, int>;
  static std::mutex mutex;
  static std::map<Key, std::vector<int>> known;
  const Key key(choice.schedule, choice.pipe, choice.stages_per_rank, micro_batches);
  const std::lock_guard lock(mutex);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known[key] =
             LiveOf(schedule::Generate(choice.schedule, {.ranks = choice.pipe,
                                                         .stages_per_rank = choice.stages_per_rank,
                                                         .micro_batches = micro_batches}));
}

double MemoryAtLeast(const Choice& choice, const StageTable& table, const Training& training) {
  return ModelBytes(choice, table.total(), training) / choice.pipe;
}

double CutMemoryAtLeast(const Choice& choice, const StageTable& table, const Training& training,
                        const std::vector<int>& live) {
  const std::vector<int> ranks =
      schedule::StageMap(choice.schedule, choice.pipe, choice.stages_per_rank);
  std::vector<double> bytes(static_cast<size_t>(choice.pipe));
  for (int s = 0; s < choice.stages(); ++s) {
    const StageCost& stage = StageOf(choice, table, s);
    bytes[ranks[s]] += ModelBytes(choice, stage, training) + live[s] * stage.kept_bytes;
  }
  return *std::max_element(bytes.begin(), bytes.end());
}

}  // namespace strata::predict
