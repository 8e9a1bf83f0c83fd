#include "engine/search/bounds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

#include "engine/schedule/generators/generators.h"
#include "engine/schedule/row_walk.h"

namespace strata::search {
namespace {

Group WithoutLatency(Group group) {
  group.within.latency = group.between.latency = 0;
  return group;
}

/// The cheapest reduction of all layers; with measured links, that of the replicas with the fastest
/// links.
StageEnd LeastEnd(const Candidate& candidate, const StageCost& total, const Training& training,
                  const Cluster& cluster) {
  const auto of_rank = [&](int rank) {
    return EndOf(candidate, total, training, WithoutLatency(ReplicasOf(candidate, cluster, rank)));
  };
  StageEnd least = of_rank(0);
  for (int rank = 1; cluster.links && rank < candidate.pipe; ++rank) {
    const StageEnd other = of_rank(rank);
    if (other.reduce < least.reduce) least = other;
  }
  return least;
}

/// A lower bound of the step T that accounts for waiting. Rank r = 0, 1, ..., P-1 has work x_r for
/// each of M micro-batches, W in all. The share h of a rank's work for one micro-batch, and each
/// message m between, delay the ranks after it: T >= h (x_0 + ... + x_(r-1)) + r m + M x_r. The
/// smallest T has equality for all r. Without messages, what a rank leaves of T falls by the factor
/// q = 1 - h / M from rank to rank, so that
///   T (1 - q^P) = h W + h / M * m * (sum over r of r q^(P-1-r)).
double WaitingStep(double work, double share, double message, double micro_batches, int pipe) {
  if (share < 1e-9) return micro_batches * work / pipe;
  const double q = 1 - share / micro_batches;
  double power = 1, waits = 0;  // power: q^(P-1-r)
  for (int r = pipe - 1; r >= 0; --r, power *= q) waits += r * power;
  if (power >= 1) return micro_batches * work / pipe;
  return share * (work + message * waits / micro_batches) / (1 - power);
}

/// The live micro-batches per stage, counted by walking the rows of the program.
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

double MessageAtLeast(const Candidate& candidate, const StageTable& table, const Cluster& cluster) {
  if (candidate.pipe == 1) return 0;
  const auto least = static_cast<double>(table.LeastOutput());
  double seconds = 0;
  // Links that are not measured repeat from node to node.
  const int last =
      cluster.links ? candidate.pipe - 1 : std::min(candidate.pipe - 1, cluster.devices_per_node);
  for (int r = 0; r < last; ++r) {
    const double message = PipeLink(candidate, cluster, r, r + 1).Seconds(least);
    seconds = r == 0 ? message : std::min(seconds, message);
  }
  return seconds;
}

double StepAtLeast(const Candidate& candidate, const StageTable& table, const Training& training,
                   const Cluster& cluster) {
  const StageCost& total = table.total();
  const auto micro_batches = static_cast<double>(candidate.micro_batches);
  const auto [reduce, update, sent] = LeastEnd(candidate, total, training, cluster);
  const bool splits = SplitsBackward(candidate.schedule);
  const double message = MessageAtLeast(candidate, table, cluster);
  // The messages by which each earlier rank delays a rank that waits.
  const double ways = splits ? message : 2 * message;
  const Paces paces = PacesOf(candidate, cluster);
  const bool differ = !paces.most.empty();
  const double fastest = differ ? *std::ranges::min_element(paces.least) : 1;
  // Sums over the ranks, each divided by its pace: a rank of pace s takes s times as long for its
  // work, but not for messages and reductions. So the step is at least the sum divided by the
  // speeds (1 / s) of all ranks. A rank with several stages can reduce one while it computes
  // another.
  double speeds = differ ? 0 : candidate.pipe, slowest = 1;
  for (const double pace : paces.most) {
    speeds += 1 / pace;
    slowest = std::max(slowest, pace);
  }
  const double busy =
      micro_batches * total.seconds() + ways * candidate.pipe * (candidate.pipe - 1) / 2 / slowest;
  const double sums = reduce / slowest;
  const double tail =
      (candidate.stages_per_rank == 1 ? busy + sums : std::max(busy, sums)) + update;
  // The time that one micro-batch needs to pass all stages and return.
  const double back = splits ? total.input_grad.seconds : total.backward_seconds();
  const double way = fastest * (total.forward.seconds + back) + 2 * message * (candidate.pipe - 1);
  const double step = std::max(tail / speeds, way);
  if (candidate.stages_per_rank > 1 || differ) return step;
  return std::max(step, WaitingStep(total.seconds(), table.LeastHeadShare(splits), ways,
                                    micro_batches, candidate.pipe));
}

CutStep::CutStep(const Candidate& candidate, const StageTable& table, const Training& training,
                 const Cluster& cluster)
    : choice_(candidate),
      table_(table),
      training_(training),
      splits_(SplitsBackward(candidate.schedule)),
      stage_ranks_(
          schedule::StageMap(candidate.schedule, candidate.pipe, candidate.stages_per_rank)),
      ranks_(static_cast<size_t>(candidate.pipe)) {
  const Paces paces = PacesOf(candidate, cluster);
  for (int r = 0; r < candidate.pipe; ++r) {
    ranks_[r].replicas = ReplicasOf(candidate, cluster, r);
    if (paces.most.empty()) continue;
    ranks_[r].least = paces.least[r];
    ranks_[r].most = paces.most[r];
  }
  for (size_t s = 0; s + 1 < stage_ranks_.size(); ++s) {
    const bool crosses = stage_ranks_[s] != stage_ranks_[s + 1];
    links_.push_back(crosses ? PipeLink(candidate, cluster, stage_ranks_[s], stage_ranks_[s + 1])
                             : LinkRates());
  }
  links_.emplace_back();  // nothing comes after the last stage
}

double CutStep::AtLeast(const std::vector<int>& bounds) {
  const auto micro_batches = static_cast<double>(choice_.micro_batches);
  for (Rank& rank : ranks_) rank.work = rank.reduce = rank.update = rank.drain = 0, rank.head = -1;
  double head = 0, drain = 0, link = 0;
  for (size_t s = 0; s < stage_ranks_.size(); ++s) {
    Rank& rank = ranks_[stage_ranks_[s]];
    const StageCost& stage = table_.Of(bounds[s], bounds[s + 1]);
    const auto [reduce, update, sent] = EndOf(choice_, stage, training_, rank.replicas);
    const bool is_first = rank.head < 0;
    rank.work += micro_batches * rank.most * stage.seconds();
    rank.update += rank.most * update;
    rank.reduce = is_first ? reduce : std::min(rank.reduce, reduce);
    if (is_first) rank.head = head, rank.drain = drain;
    head += rank.least * stage.forward.seconds;
    drain += rank.least * (splits_ ? stage.input_grad.seconds : stage.backward_seconds());
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

std::vector<int> LiveAtLeast(const Candidate& candidate) {
  const bool holds_all = candidate.schedule == "gpipe" || candidate.schedule == "looped_bfs";
  if (holds_all) {
    return std::vector<int>(static_cast<size_t>(candidate.stages()),
                            static_cast<int>(candidate.micro_batches));
  }
  // More than two groups of `pipe` micro-batches change nothing, unless `pipe` does not divide
  // their number: then groups are larger, and the result is a few too low, which a lower bound may
  // be.
  const int64_t groups = std::min<int64_t>(candidate.micro_batches / candidate.pipe, 2);
  const auto micro_batches =
      static_cast<int>(groups > 0 ? groups * candidate.pipe : candidate.micro_batches);
  using Key = std::tuple<std::string, int, int, int>;
  static std::mutex mutex;
  static std::map<Key, std::vector<int>> known;
  const Key key(candidate.schedule, candidate.pipe, candidate.stages_per_rank, micro_batches);
  const std::lock_guard lock(mutex);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known[key] = LiveOf(
             schedule::Generate(candidate.schedule, {.ranks = candidate.pipe,
                                                     .stages_per_rank = candidate.stages_per_rank,
                                                     .micro_batches = micro_batches}));
}

double MemoryAtLeast(const Candidate& candidate, const StageTable& table,
                     const Training& training) {
  return ModelBytes(candidate, table.total(), training) / candidate.pipe;
}

std::vector<double> CutMemoryAtLeast(const Candidate& candidate, const StageTable& table,
                                     const Training& training, const std::vector<int>& live) {
  const std::vector<int> ranks =
      schedule::StageMap(candidate.schedule, candidate.pipe, candidate.stages_per_rank);
  std::vector<double> bytes(static_cast<size_t>(candidate.pipe));
  for (int s = 0; s < candidate.stages(); ++s) {
    const StageCost& stage = StageOf(candidate, table, s);
    bytes[ranks[s]] += ModelBytes(candidate, stage, training) + live[s] * stage.kept_bytes;
  }
  return bytes;
}

}  // namespace strata::search
