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
#include "engine/base/text.h"
#include "engine/plan/cut/all_cuts.h"
#include "engine/schedule/generators/generators.h"
#include "engine/search/bounds.h"
#include "engine/search/cuts.h"

namespace strata::predict {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

constexpr int kStagesPerRank[] = {1, 2, 3, 4, 6, 8};

/// Simulated actions that moving the bounds of one winner may take.
constexpr int64_t kMovedActions = 12'000'000;

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

/// What a way differs in beside its degrees and its micro-batches.
struct Variant {
  std::string schedule;
  int stages_per_rank;
  Recompute recompute;
  int zero;
};

/// A place in the search: a choice that becomes more certain step by step.
struct Node {
  enum class Level {
    kSizes,    ///< degrees and micro-batches; the rest is the best that could be
    kVariant,  ///< all but the cut
    kCut,      ///< with a cut, or a bound that is nearer to all cuts
  };
  double bound = 0;  ///< no step below this node is shorter
  Level level = Level::kSizes;
  int64_t order = 0;  ///< of equal bounds the first one made comes first
  Choice choice = {};

  bool operator<(const Node& other) const {  // for a queue that gives the largest first
    return std::tie(other.bound, other.order) < std::tie(bound, order);
  }
};

/// Ways that differ in less are shown as one.
using Kin = std::tuple<int, int, int>;
Kin KinOf(const Choice& choice) { return {choice.pipe, choice.data, choice.model}; }

class PlanSearch {
 public:
  PlanSearch(Network& network, const Cluster& cluster, const Space& space, int top)
      : network_(network),
        cluster_(cluster),
        space_(space),
        top_(top),
        training_(network.training()),
        capacity_(cluster.memory()),
        limit_(space.below > 0 ? space.below : kNever) {}

  FoundPlans Run() {
    ListVariants();
    ListSizes();
    while (!queue_.empty() && queue_.top().bound < limit_) {
      const Node node = queue_.top();
      queue_.pop();
      Expand(node);
    }
    for (auto& [kin, found] : best_) MoveBounds(found);
    for (auto& [kin, found] : best_) result_.best.push_back(std::move(found));
    std::stable_sort(result_.best.begin(), result_.best.end(),
                     [](const FoundPlan& a, const FoundPlan& b) {
                       return a.prediction.step < b.prediction.step;
                     });
    if (static_cast<int>(result_.best.size()) > top_) {
      result_.best.resize(static_cast<size_t>(top_));
    }
    result_.least_memory = least_memory_ == kNever ? 0 : least_memory_;
    return std::move(result_);
  }

 private:
  std::shared_ptr<const StageTable> TableOf(const Choice& choice) {
    return network_.Table(choice.micro_batch_size, choice.model, choice.recompute);
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
      for (int zero : space_.zero) variants_.push_back({schedule, v, recompute, zero});
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
      node.choice.pipe = pipe;
      node.choice.data = data;
      node.choice.model = model;
      node.choice.micro_batches = count;
      node.choice.micro_batch_size = size;
      const auto table = network_.Table(size, model, Recompute::kNone);
      if (table == nullptr) continue;
      const StageCost& total = table->total();
      node.bound = std::max(static_cast<double>(count) * LeastSeconds(total) / pipe,
                            total.forward.seconds + total.input_grad.seconds);
      Push(std::move(node));
    }
  }

  /// Whatever is recomputed.
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
        return Simulate(node.choice);
    }
  }

  void ExpandSizes(const Node& node) {
    bool has_one = false;
    for (const Variant& variant : variants_) {
      Choice choice = node.choice;
      choice.schedule = variant.schedule;
      choice.stages_per_rank = variant.stages_per_rank;
      choice.recompute = variant.recompute;
      choice.zero = variant.zero;
      const bool is_first = variant.zero == space_.zero.front();
      if (choice.data == 1 && !is_first) continue;  // nothing to share
      // One rank alone: whatever the schedule, it works all the time.
      const bool is_kin = has_one && (alone_.schedule != variant.schedule ||
                                      alone_.stages_per_rank != variant.stages_per_rank);
      if (choice.pipe == 1 && is_kin) continue;
      if (!Fits(choice)) continue;
      has_one = true;
      alone_ = variant;
      ++result_.considered;
      AddVariant(std::move(choice), node.bound);
    }
  }

  bool Fits(const Choice& choice) const {
    if (choice.stages() > network_.layers()) return false;
    if (!space_.bounds.empty() && choice.stages() + 1 != static_cast<int>(space_.bounds.size())) {
      return false;
    }
    return schedule::Fits(choice.schedule,
                          {.ranks = choice.pipe,
                           .stages_per_rank = choice.stages_per_rank,
                           .micro_batches = static_cast<int>(choice.micro_batches)});
  }

  void AddVariant(Choice choice, double bound) {
    const auto table = TableOf(choice);
    if (table == nullptr) return;
    if (!HasRoom(MemoryAtLeast(choice, *table, training_))) return;
    Node node;
    node.level = Node::Level::kVariant;
    node.bound = std::max(bound, StepAtLeast(choice, *table, training_, cluster_));
    node.choice = std::move(choice);
    Push(std::move(node));
  }

  bool HasRoom(double memory) {
    if (memory <= capacity_) return true;
    least_memory_ = std::min(least_memory_, memory);
    return false;
  }

  bool TriesAllCuts(const Choice& choice) const {
    return space_.bounds.empty() &&
           partition::CountCuts(network_.layers(), choice.stages(), 2 * kAllCuts) <= kAllCuts;
  }

  void ExpandVariant(const Node& node) {
    const auto table = TableOf(node.choice);
    ++result_.bounded;
    Node next = node;
    next.level = Node::Level::kCut;
    if (TriesAllCuts(node.choice)) {
      CutGoal goal = GoalOf(node.choice, /*head=*/true);
      goal.message = MessageAtLeast(node.choice, *table, cluster_) * (goal.splits ? 1 : 2);
      const auto best = FindCut(*table, goal);
      next.bound = std::max(node.bound, best->cost);
      if (node.choice.stages_per_rank > 1) next.bound = node.bound;
      Push(std::move(next));
      return;
    }
    const std::vector<int> live = LiveAtLeast(node.choice);
    CutStep step(node.choice, *table, training_, cluster_);
    for (const std::vector<int>& bounds : GoodCuts(node.choice, *table, live)) {
      next.choice.bounds = bounds;
      next.bound = std::max(node.bound, step.AtLeast(bounds));
      Push(next);
    }
  }

  static CutGoal GoalOf(const Choice& choice, bool head) {
    const bool has_head = head && choice.stages_per_rank == 1;
    return {.stages = choice.stages(),
            .micro_batches = has_head ? static_cast<double>(choice.micro_batches) : 1,
            .head = has_head,
            .splits = SplitsBackward(choice.schedule)};
  }

  /// The cuts of a large network that are tried: without regard to memory where they fit, else
  /// those of stages that do.
  std::vector<std::vector<int>> GoodCuts(const Choice& choice, const StageTable& table,
                                         const std::vector<int>& live) {
    if (!space_.bounds.empty()) return {space_.bounds};
    std::vector<std::vector<int>> cuts;
    for (bool head : {true, false}) {
      if (head && choice.stages_per_rank > 1) continue;
      CutGoal goal = GoalOf(choice, head);
      std::vector<int> bounds = UnlimitedCut(choice, table, goal);
      Choice cut = choice;
      cut.bounds = bounds;
      if (CutMemoryAtLeast(cut, table, training_, live) > capacity_) {
        goal.fits = [&](int stage, int begin, int end) {
          const StageCost& load = table.Of(begin, end);
          const double bytes = ModelBytes(choice, load, training_) + live[stage] * load.kept_bytes;
          return bytes * choice.stages_per_rank <= capacity_;
        };
        const auto limited = FindCut(table, goal);
        if (!limited) {
          HasRoom(CutMemoryAtLeast(cut, table, training_, live));
          continue;
        }
        bounds = limited->bounds;
      }
      if (Allows(cuts, bounds) && !cuts.empty()) continue;
      cuts.push_back(std::move(bounds));
    }
    return cuts;
  }

  /// Many ways have the same one.
  const std::vector<int>& UnlimitedCut(const Choice& choice, const StageTable& table,
                                       const CutGoal& goal) {
    const auto key = std::make_tuple(&table, goal.stages, goal.micro_batches, goal.head,
                                     goal.head && goal.splits);
    auto found = cuts_.find(key);
    if (found == cuts_.end()) {
      kept_tables_.insert(TableOf(choice));
      found = cuts_.emplace(key, FindCut(table, goal)->bounds).first;
    }
    return found->second;
  }

  // ---- Steps

  void Simulate(const Choice& choice) {
    const auto table = TableOf(choice);
    std::optional<schedule::Program> program;  // the same for all cuts
    const auto simulate = [&](const Choice& cut) {
      if (!program) program = ProgramOf(cut);
      Predicted(cut, *table, *program);
    };
    if (!choice.bounds.empty()) return simulate(choice);
    const std::vector<int> live = LiveAtLeast(choice);
    CutStep step(choice, *table, training_, cluster_);
    Choice cut = choice;
    partition::ForEachCut(network_.layers(), choice.stages(), [&](const std::vector<int>& bounds) {
      if (step.AtLeast(bounds) >= limit_) return;
      cut.bounds = bounds;
      if (HasRoom(CutMemoryAtLeast(cut, *table, training_, live))) simulate(cut);
    });
  }

  void Predicted(const Choice& choice, const StageTable& table, const schedule::Program& program) {
    ++result_.simulated;
    Prediction prediction = PredictStep(choice, table, training_, cluster_, program);
    if (!HasRoom(prediction.memory) || prediction.step > limit_) return;
    Keep({choice, std::move(prediction)});
  }

  /// Of equally long steps the one with less memory.
  static std::pair<double, double> Score(const FoundPlan& found) {
    return {found.prediction.step, found.prediction.memory};
  }

  void Keep(FoundPlan found) {
    const Kin kin = KinOf(found.choice);
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
    for (const auto& [kin, found] : best_) steps.push_back(found.prediction.step);
    const auto last = steps.begin() + (top_ - 1);
    std::nth_element(steps.begin(), last, steps.end());
    limit_ = *last;
    std::erase_if(best_, [&](const auto& entry) { return entry.second.prediction.step > limit_; });
  }

  /// Moves one bound by one layer as long as the step becomes shorter.
  void MoveBounds(FoundPlan& found) {
    if (!space_.bounds.empty() || TriesAllCuts(found.choice)) return;
    const auto table = TableOf(found.choice);
    const schedule::Program program = ProgramOf(found.choice);
    const int64_t actions = CountActions(program);
    int64_t budget = kMovedActions;
    bool moves = true;
    while (moves) {
      moves = false;
      for (size_t b = 1; b + 1 < found.choice.bounds.size(); ++b) {
        for (int by : {-1, 1}) {
          if ((budget -= actions) < 0) return;
          moves |= Move(found, b, by, *table, program);
        }
      }
    }
  }

  bool Move(FoundPlan& found, size_t bound, int by, const StageTable& table,
            const schedule::Program& program) {
    Choice choice = found.choice;
    std::vector<int>& bounds = choice.bounds;
    bounds[bound] += by;
    const bool is_cut = bounds[bound - 1] < bounds[bound] && bounds[bound] < bounds[bound + 1];
    if (!is_cut ||
        CutStep(choice, table, training_, cluster_).AtLeast(bounds) >= found.prediction.step) {
      return false;
    }
    ++result_.simulated;
    Prediction prediction = PredictStep(choice, table, training_, cluster_, program);
    if (prediction.memory > capacity_ || prediction.step >= found.prediction.step) return false;
    found = {std::move(choice), std::move(prediction)};
    return true;
  }

  static constexpr int64_t kMaxMicroBatches = 1 << 16;

  Network& network_;
  const Cluster& cluster_;
  const Space& space_;
  const int top_;
  const Training training_;
  const double capacity_;

  std::vector<Variant> variants_;
  Variant alone_ = {};  ///< what one rank runs
  std::priority_queue<Node> queue_;
  int64_t order_ = 0;
  std::map<std::tuple<const StageTable*, int, double, bool, bool>, std::vector<int>> cuts_;
  std::set<std::shared_ptr<const StageTable>> kept_tables_;  ///< of cuts_
  std::map<Kin, FoundPlan> best_;
  double limit_;
  double least_memory_ = kNever;
  FoundPlans result_;
};

}  // namespace

FoundPlans SearchPlans(Network& network, const Cluster& cluster, const Space& space, int top) {
  if (space.batch < 1) throw ConfigError("a step needs at least one sample");
  if (network.layers() > StageTable::kMaxLayers) {
    throw ConfigError(Str(FormatCount(network.layers()), " layers are too many to search; there ",
                          "can be ", FormatCount(StageTable::kMaxLayers),
                          ": join some in nn.Sequential"));
  }
  return PlanSearch(network, cluster, space, top).Run();
}

}  // namespace strata::predict
