#include "engine/search/plan_search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "engine/base/error.h"
#include "engine/plan/cut/all_cuts.h"
#include "engine/schedule/generators/generators.h"
#include "engine/search/bounds.h"
#include "engine/search/climb.h"
#include "engine/search/cuts.h"

namespace strata::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

constexpr int kStagesPerRank[] = {1, 2, 3, 4, 6, 8};

/// The share of the limits that is for the tree; the rest is for moving the bounds of the winners.
constexpr double kTreeShare = 0.5;
/// A bound without cuts costs as much effort as simulating so many actions, and good cuts cost so
/// much for each stage.
constexpr int64_t kBoundActions = 4, kCutActions = 20;
/// A step is not simulated if that would take more than this share of the limits.
constexpr double kLargestShare = 1.0 / 16;

template <class T>
bool Allows(const std::vector<T>& allowed, const T& value) {
  return allowed.empty() || std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

std::vector<int64_t> DivisorsOf(int64_t n) {
  std::vector<int64_t> low, high;
  for (int64_t k = 1; k * k <= n; ++k) {
    if (n % k != 0) continue;
    low.push_back(k);
    if (k * k < n) high.push_back(n / k);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

/// The choices of a candidate besides its degrees and its micro-batches.
struct Variant {
  std::string schedule;
  int stages_per_rank;
  Recompute recompute;
  int zero;
};

/// A node of the search tree: a candidate of which more is fixed from level to level.
struct Node {
  enum class Level {
    kSizes,    ///< degrees and micro-batches; the bound assumes the best for the rest
    kVariant,  ///< everything except the cuts
    kCut,      ///< with cuts, or with a better bound for all cuts
  };
  double bound = 0;  ///< a lower bound of all steps below this node
  Level level = Level::kSizes;
  int64_t order = 0;  ///< creation order: of equal bounds the earlier node comes first
  Candidate candidate = {};

  bool operator<(const Node& other) const {  // reversed, as the queue returns its largest element
    return std::tie(other.bound, other.order) < std::tie(bound, order);
  }
};

/// Candidates with equal degrees are kin: only the best of them is shown.
using Kin = std::tuple<int, int, int>;
Kin KinOf(const Candidate& candidate) { return {candidate.pipe, candidate.data, candidate.model}; }

double LargestMemory(const Cluster& cluster) {
  double most = cluster.MemoryOf(0);
  for (int i = 1; i < cluster.devices(); ++i) most = std::max(most, cluster.MemoryOf(i));
  return most;
}

double FastestPace(const Cluster& cluster) {
  double fastest = cluster.abilities.empty() ? 1 : 0;
  for (const RankAbility& device : cluster.abilities) fastest = std::max(fastest, device.speed);
  return 1 / fastest;
}

class PlanSearch {
 public:
  PlanSearch(Network& network, const Cluster& cluster, const Space& space, int top,
             const SearchLimits& limits)
      : network_(network),
        cluster_(cluster),
        space_(space),
        top_(top),
        limits_(limits),
        effort_(EffortOf(kTreeShare)),
        training_(network.training()),
        capacity_(LargestMemory(cluster)),
        fastest_(FastestPace(cluster)),
        limit_(space.below > 0 ? space.below : kNever) {}

  FoundPlans Run() {
    ListVariants();
    ListSizes();
    while (!queue_.empty() && queue_.top().bound < limit_) {
      if (!effort_.Spend(kBoundActions)) {
        result_.is_late = effort_.is_late();
        LeaveOut(queue_.top().bound);
        break;
      }
      const Node node = queue_.top();
      queue_.pop();
      Expand(node);
    }
    for (auto& [kin, found] : best_) result_.best.push_back(std::move(found));
    const auto step = [](const FoundPlan& found) { return found.forecast.step; };
    std::ranges::stable_sort(result_.best, {}, step);
    effort_ = EffortOf(1 - kTreeShare);
    for (FoundPlan& found : result_.best) MoveBounds(found);
    std::ranges::stable_sort(result_.best, {}, step);
    if (result_.is_cut_short) {
      const double best = result_.best.empty() ? kNever : step(result_.best.front());
      result_.missed = std::max(0.0, 1 - left_out_ / best);
    }
    if (static_cast<int>(result_.best.size()) > top_) {
      result_.best.resize(static_cast<size_t>(top_));
    }
    result_.least_memory = least_memory_ == kNever ? 0 : least_memory_;
    return std::move(result_);
  }

 private:
  std::shared_ptr<const StageTable> TableOf(const Candidate& candidate) {
    return network_.Table(candidate.micro_batch_size, candidate.model, candidate.recompute);
  }

  Effort EffortOf(double share) const {
    return Effort(static_cast<int64_t>(share * static_cast<double>(limits_.actions)),
                  share * limits_.seconds);
  }

  /// Notes that a node was not looked at, or none from this bound on.
  void LeaveOut(double bound) {
    result_.is_cut_short = true;
    left_out_ = std::min(left_out_, bound);
  }

  // ---- The space

  void ListVariants() {
    std::vector<std::string> schedules = schedule::TriedSchedules();
    std::ranges::stable_sort(schedules, {}, schedule::TurnOf);
    std::vector<int> counts(std::begin(kStagesPerRank), std::end(kStagesPerRank));
    std::erase_if(counts, [&](int v) { return !Allows(space_.stages_per_rank, v); });
    for (int v : space_.stages_per_rank) {
      if (std::ranges::find(counts, v) == counts.end()) counts.push_back(v);
    }
    for (int v : counts) {
      for (const std::string& schedule : schedules) AddVariants(schedule, v);
    }
  }

  void AddVariants(const std::string& schedule, int v) {
    if (!Allows(space_.schedules, schedule)) return;
    const bool is_gpipe = schedule == "looped_bfs" && v == 1;
    if (is_gpipe && space_.schedules.empty()) return;
    for (Recompute recompute : {Recompute::kNone, Recompute::kLayers, Recompute::kStages}) {
      if (!Allows(space_.recompute, recompute)) continue;
      for (int zero : space_.zero) {
        // Candidates with zero = 1 that do not fit are tried with 2 (Simulate()).
        if (zero == 2 && space_.zero.size() > 1) continue;
        variants_.push_back({schedule, v, recompute, zero});
      }
    }
  }

  void ListSizes() {
    const int layers = network_.layers();
    const std::vector<int64_t> shares = DivisorsOf(space_.batch);
    for (int model = 1; model <= cluster_.devices_per_node; ++model) {
      if (cluster_.devices_per_node % model != 0 || !Allows(space_.model, model)) continue;
      for (int pipe = 1; pipe <= std::min(layers, cluster_.devices() / model); ++pipe) {
        if (!Allows(space_.pipe, pipe)) continue;
        for (int64_t data : shares) {
          if (data * pipe * model > cluster_.devices()) break;
          if (Allows(space_.data, static_cast<int>(data))) {
            ListMicroBatches(pipe, static_cast<int>(data), model);
          }
        }
      }
    }
  }

  void ListMicroBatches(int pipe, int data, int model) {
    for (int64_t size : DivisorsOf(space_.batch / data)) {
      const int64_t count = space_.batch / data / size;
      if (!Allows(space_.micro_batch_sizes, size) || !Allows(space_.micro_batches, count)) continue;
      if (count > kMaxMicroBatches) continue;
      Node node;
      node.candidate.pipe = pipe;
      node.candidate.data = data;
      node.candidate.model = model;
      node.candidate.micro_batches = count;
      node.candidate.micro_batch_size = size;
      const auto table = network_.Table(size, model, Recompute::kNone);
      if (table == nullptr) continue;
      const StageCost& total = table->total();
      node.bound = fastest_ * std::max(static_cast<double>(count) * LeastSeconds(total) / pipe,
                                       total.forward.seconds + total.input_grad.seconds);
      Push(std::move(node));
    }
  }

  /// The seconds without any recomputation.
  static double LeastSeconds(const StageCost& total) {
    return total.forward.seconds + total.backward_seconds();
  }

  void Push(Node node) {
    if (node.bound >= limit_) return;
    node.order = ++order_;
    queue_.push(std::move(node));
  }

  // ---- From level to level

  void Expand(const Node& node) {
    switch (node.level) {
      case Node::Level::kSizes:
        return ExpandSizes(node);
      case Node::Level::kVariant:
        return ExpandVariant(node);
      case Node::Level::kCut:
        return Simulate(node);
    }
  }

  void ExpandSizes(const Node& node) {
    bool has_one = false;
    for (const Variant& variant : variants_) {
      Candidate candidate = node.candidate;
      candidate.schedule = variant.schedule;
      candidate.stages_per_rank = variant.stages_per_rank;
      candidate.recompute = variant.recompute;
      candidate.zero = variant.zero;
      const bool is_first = variant.zero == space_.zero.front();
      if (candidate.data == 1 && !is_first) continue;  // ZeRO has nothing to share
      // A single rank always works, so its schedule does not matter.
      const bool is_kin = has_one && (alone_.schedule != variant.schedule ||
                                      alone_.stages_per_rank != variant.stages_per_rank);
      if (candidate.pipe == 1 && is_kin) continue;
      if (!Fits(candidate)) continue;
      has_one = true;
      alone_ = variant;
      ++result_.considered;
      effort_.Spend(kBoundActions);
      AddVariant(std::move(candidate), node.bound);
    }
  }

  /// The candidate with zero = 2 instead of 1 if that may be tried and may save memory. It saves
  /// none where a rank accumulates all its gradients at once.
  Candidate WithLateGradients(Candidate candidate) const {
    const bool saves = candidate.micro_batches == 1 || candidate.stages_per_rank > 1;
    if (saves && candidate.zero == 1 && !Excludes(space_.zero, 2)) candidate.zero = 2;
    return candidate;
  }
  static bool Excludes(const std::vector<int>& values, int value) {
    return std::ranges::find(values, value) == values.end();
  }

  bool Fits(const Candidate& candidate) const {
    if (candidate.stages() > network_.layers()) return false;
    if (!space_.bounds.empty() &&
        candidate.stages() + 1 != static_cast<int>(space_.bounds.size())) {
      return false;
    }
    return schedule::Fits(candidate.schedule,
                          {.ranks = candidate.pipe,
                           .stages_per_rank = candidate.stages_per_rank,
                           .micro_batches = static_cast<int>(candidate.micro_batches)});
  }

  void AddVariant(Candidate candidate, double bound) {
    const auto table = TableOf(candidate);
    if (table == nullptr) return;
    if (!HasRoom(MemoryAtLeast(WithLateGradients(candidate), *table, training_))) return;
    Node node;
    node.level = Node::Level::kVariant;
    node.bound = std::max(bound, StepAtLeast(candidate, *table, training_, cluster_));
    node.candidate = std::move(candidate);
    Push(std::move(node));
  }

  bool HasRoom(double memory) {
    if (memory <= capacity_) return true;
    least_memory_ = std::min(least_memory_, memory);
    return false;
  }

  bool TriesAllCuts(const Candidate& candidate) const {
    return space_.bounds.empty() &&
           partition::CountCuts(network_.layers(), candidate.stages(), 2 * kAllCuts) <= kAllCuts;
  }

  void ExpandVariant(const Node& node) {
    const auto table = TableOf(node.candidate);
    ++result_.bounded;
    effort_.Spend(kCutActions * node.candidate.stages());
    Node next = node;
    next.level = Node::Level::kCut;
    if (TriesAllCuts(node.candidate)) {
      CutGoal goal = GoalOf(node.candidate, /*head=*/true);
      goal.message = MessageAtLeast(node.candidate, *table, cluster_) * (goal.splits ? 1 : 2);
      const auto best = FindCut(*table, goal);
      next.bound = std::max(node.bound, best->cost);
      if (node.candidate.stages_per_rank > 1) next.bound = node.bound;
      Push(std::move(next));
      return;
    }
    const std::vector<int> live = LiveAtLeast(node.candidate);
    CutStep step(node.candidate, *table, training_, cluster_);
    for (const std::vector<int>& bounds : GoodCuts(node.candidate, *table, live)) {
      next.candidate.bounds = bounds;
      next.bound = std::max(node.bound, step.AtLeast(bounds));
      Push(next);
    }
  }

  CutGoal GoalOf(const Candidate& candidate, bool head) const {
    const bool has_head = head && candidate.stages_per_rank == 1;
    CutGoal goal = {.stages = candidate.stages(),
                    .micro_batches = has_head ? static_cast<double>(candidate.micro_batches) : 1,
                    .head = has_head,
                    .splits = SplitsBackward(candidate.schedule)};
    const Paces paces = PacesOf(candidate, cluster_);
    if (paces.most.empty()) return goal;
    for (const int rank : StageRanks(candidate)) goal.slowness.push_back(paces.most[rank]);
    return goal;
  }

  static std::vector<int> StageRanks(const Candidate& candidate) {
    return schedule::StageMap(candidate.schedule, candidate.pipe, candidate.stages_per_rank);
  }

  /// True if each rank of the pipe axis has room for its bytes.
  template <class Bytes>
  bool HaveRoom(const Candidate& candidate, const Bytes& bytes) {
    const std::vector<double> memories = MemoriesOf(candidate, cluster_);
    for (size_t rank = 0; rank < bytes.size(); ++rank) {
      const double capacity = memories.empty() ? capacity_ : memories[rank];
      if (bytes[rank] <= capacity) continue;
      least_memory_ = std::min(least_memory_, std::ranges::max(bytes));
      return false;
    }
    return true;
  }

  /// The cuts to try for a large network: the best ones without regard to memory if they fit, else
  /// the best of those whose stages fit.
  std::vector<std::vector<int>> GoodCuts(const Candidate& candidate, const StageTable& table,
                                         const std::vector<int>& live) {
    if (!space_.bounds.empty()) return {space_.bounds};
    std::vector<std::vector<int>> cuts;
    for (bool head : {true, false}) {
      if (head && candidate.stages_per_rank > 1) continue;
      CutGoal goal = GoalOf(candidate, head);
      std::vector<int> bounds = UnlimitedCut(candidate, table, goal);
      Candidate cut = WithLateGradients(candidate);
      cut.bounds = bounds;
      const double before = least_memory_;
      if (!HaveRoom(cut, CutMemoryAtLeast(cut, table, training_, live))) {
        const std::vector<double> memories = MemoriesOf(candidate, cluster_);
        const std::vector<int> ranks = StageRanks(candidate);
        goal.fits = [&](int stage, int begin, int end) {
          const StageCost& load = table.Of(begin, end);
          const double bytes = ModelBytes(cut, load, training_) + live[stage] * load.kept_bytes;
          return bytes * candidate.stages_per_rank <=
                 (memories.empty() ? capacity_ : memories[ranks[stage]]);
        };
        const auto limited = FindCut(table, goal);
        if (!limited) continue;
        least_memory_ = before;  // other cuts fit
        bounds = limited->bounds;
      }
      if (Allows(cuts, bounds) && !cuts.empty()) continue;
      cuts.push_back(std::move(bounds));
    }
    return cuts;
  }

  /// The best cut without a memory limit; cached, because many candidates share it.
  const std::vector<int>& UnlimitedCut(const Candidate& candidate, const StageTable& table,
                                       const CutGoal& goal) {
    const auto key = std::make_tuple(&table, goal.stages, goal.micro_batches, goal.head,
                                     goal.head && goal.splits, goal.slowness);
    auto found = cuts_.find(key);
    if (found == cuts_.end()) {
      kept_tables_.insert(TableOf(candidate));
      found = cuts_.emplace(key, FindCut(table, goal)->bounds).first;
    }
    return found->second;
  }

  // ---- Steps

  void Simulate(const Node& node) {
    const Candidate& candidate = node.candidate;
    const double actions = 3.0 * candidate.stages() * static_cast<double>(candidate.micro_batches);
    if (actions > kLargestShare * static_cast<double>(limits_.actions)) return LeaveOut(node.bound);
    const auto table = TableOf(candidate);
    std::optional<Evaluator> evaluator;  // of the program, which is the same for all cuts
    const auto simulate = [&](const Candidate& cut) {
      if (!evaluator) evaluator.emplace(ProgramOf(cut));
      Candidate kept = cut;
      std::optional<StepEvaluation> forecast = Evaluated(cut, *table, *evaluator);
      if (!forecast) {
        kept = WithLateGradients(cut);
        if (kept.zero != cut.zero) forecast = Evaluated(kept, *table, *evaluator);
      }
      if (forecast && forecast->step <= limit_) Keep({kept, *std::move(forecast)});
    };
    if (!candidate.bounds.empty()) return simulate(candidate);
    const std::vector<int> live = LiveAtLeast(candidate);
    CutStep step(candidate, *table, training_, cluster_);
    Candidate cut = candidate, late = WithLateGradients(candidate);
    partition::ForEachCut(network_.layers(), candidate.stages(),
                          [&](const std::vector<int>& bounds) {
                            if (step.AtLeast(bounds) >= limit_) return;
                            cut.bounds = late.bounds = bounds;
                            if (HaveRoom(late, CutMemoryAtLeast(late, *table, training_, live)))
                              simulate(cut);
                          });
  }

  /// Simulates a step; nothing if it needs too much memory.
  std::optional<StepEvaluation> Evaluated(const Candidate& candidate, const StageTable& table,
                                          const Evaluator& evaluator) {
    ++result_.simulated;
    effort_.Spend(CountActions(evaluator.program()));
    if (limits_.progress) limits_.progress(result_);
    StepEvaluation forecast = evaluator.Of(
        PlacedOn(candidate, table, training_, cluster_, evaluator.program().stage_ranks));
    std::vector<double> bytes;
    for (const RankForecast& rank : forecast.ranks) {
      bytes.push_back(static_cast<double>(rank.memory.total()));
    }
    if (!HaveRoom(candidate, bytes)) return std::nullopt;
    return forecast;
  }

  /// Orders plans by step; of equal steps the one with less memory is better.
  static std::pair<double, int64_t> Score(const FoundPlan& found) {
    return {found.forecast.step, found.forecast.memory};
  }

  void Keep(FoundPlan found) {
    const Kin kin = KinOf(found.candidate);
    const auto known = best_.find(kin);
    if (known == best_.end()) {
      best_.emplace(kin, std::move(found));
    } else if (Score(found) < Score(known->second)) {
      known->second = std::move(found);
    } else {
      return;
    }
    UpdateLimit();
  }

  void UpdateLimit() {
    if (static_cast<int>(best_.size()) < top_) return;
    std::vector<double> steps;
    for (const auto& [kin, found] : best_) steps.push_back(found.forecast.step);
    const auto last = steps.begin() + (top_ - 1);
    std::nth_element(steps.begin(), last, steps.end());
    limit_ = *last;
    std::erase_if(best_, [&](const auto& entry) { return entry.second.forecast.step > limit_; });
  }

  /// Moves bounds while the step becomes shorter.
  void MoveBounds(FoundPlan& found) {
    if (!space_.bounds.empty() || TriesAllCuts(found.candidate)) return;
    const auto table = TableOf(found.candidate);
    const Evaluator evaluator(ProgramOf(found.candidate));
    CutStep step(found.candidate, *table, training_, cluster_);
    const auto attempt = [&](const std::vector<int>& bounds) {
      if (step.AtLeast(bounds) >= found.forecast.step) return false;
      Candidate candidate = found.candidate;
      candidate.bounds = bounds;
      std::optional<StepEvaluation> forecast = Evaluated(candidate, *table, evaluator);
      if (!forecast || forecast->step >= found.forecast.step) return false;
      found = {std::move(candidate), *std::move(forecast)};
      return true;
    };
    const auto crossing = [&](int place) { return table->Of(place - 1, place).output_bytes; };
    Climb(found.candidate.bounds, {attempt, crossing}, effort_);
  }

  static constexpr int64_t kMaxMicroBatches = 1 << 16;

  Network& network_;
  const Cluster& cluster_;
  const Space& space_;
  const int top_;
  const SearchLimits& limits_;
  Effort effort_;
  const Training training_;
  const double capacity_;  ///< bytes of the device with most
  const double fastest_;   ///< the pace of the fastest device

  std::vector<Variant> variants_;
  Variant alone_ = {};  ///< the variant that a single rank runs
  std::priority_queue<Node> queue_;
  int64_t order_ = 0;
  std::map<std::tuple<const StageTable*, int, double, bool, bool, std::vector<double>>,
           std::vector<int>>
      cuts_;
  /// Keeps the tables alive that the keys of cuts_ point to.
  std::set<std::shared_ptr<const StageTable>> kept_tables_;
  std::map<Kin, FoundPlan> best_;
  double limit_;
  double least_memory_ = kNever;
  double left_out_ = kNever;  ///< a lower bound of the steps that were left out
  FoundPlans result_;
};

}  // namespace

FoundPlans SearchPlans(Network& network, const Cluster& cluster, const Space& space, int top,
                       const SearchLimits& limits) {
  if (space.batch < 1) throw ConfigError("a step needs at least one sample");
  return PlanSearch(network, cluster, space, top, limits).Run();
}

}  // namespace strata::search
