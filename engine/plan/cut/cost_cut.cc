#include "engine/plan/cut/cost_cut.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/select.h"
#include "engine/layers/parts.h"
#include "engine/plan/cut/best_cut.h"
#include "engine/plan/cut/partition.h"

namespace strata::partition {
namespace {

constexpr double kPicoseconds = 1e12;

/// LayerPlan::segment of every layer, for methods that do not ask about the stage. {every=N} counts
/// layers from the beginning of the list instead of the stage. {} means that nothing is recomputed.
std::vector<int> SegmentsOf(const Job& job) {
  using Method = RecomputeSpec::Method;
  std::vector<int> segments;
  switch (job.recompute.method) {
    case Method::kStages:
      segments.assign(job.layers.size(), 0);
      break;
    case Method::kEvery:
      segments.resize(job.layers.size());
      for (size_t i = 0; i < segments.size(); ++i) {
        segments[i] = LayerNumber(job.layers, static_cast<int>(i)) / job.recompute.every;
      }
      break;
    case Method::kLayers:
      segments.assign(job.layers.size(), -1);
      for (const int i : SelectLayers(job.recompute.layers, job.layers, "recompute")) {
        segments[i] = LayerNumber(job.layers, i);
      }
      break;
    case Method::kNone:
    case Method::kFunction:
    case Method::kAuto:
      break;
  }
  return segments;
}

/// LayerPlan::segment of every layer, for each stage, as the job's recompute function chooses. The
/// function is asked only about the stages that a layer can be on: of S stages and L layers, the
/// one numbered s has none before layer s and none behind layer L - S + s. The other entries repeat
/// those of the neighbouring stage, so that they are equal where the function ignores the stage.
std::vector<std::vector<int>> ChosenSegments(const Job& job, const CostCutOptions& options) {
  const auto stages = static_cast<int>(options.settings.size());
  const auto layers = static_cast<int>(job.layers.size());
  std::vector<std::vector<int>> segments(options.settings.size(), std::vector<int>(layers, -1));
  for (int s = 0; s < stages; ++s) {
    if (s > 0) segments[s] = segments[s - 1];
    for (int i = s; i <= layers - stages + s; ++i) {
      segments[s][i] = options.recomputes(i, s) ? LayerNumber(job.layers, i) : -1;
    }
  }
  for (int s = stages - 2; s >= 0; --s) {
    const int behind = layers - stages + s + 1;
    std::copy(segments[s + 1].begin() + behind, segments[s + 1].end(),
              segments[s].begin() + behind);
  }
  return segments;
}

/// The ways to recompute that a stage may take, each as the segments of all layers. There are
/// several only for "auto" with a memory limit.
std::vector<std::vector<int>> WaysOf(const Job& job, const ModelCosts& costs, bool is_limited) {
  if (job.recompute.method != RecomputeSpec::Method::kAuto || !is_limited) return {SegmentsOf(job)};
  std::vector<int> each(job.layers.size()), all(job.layers.size(), 0);
  std::iota(each.begin(), each.end(), 0);
  for (size_t i = 0; i < all.size(); ++i) {
    if (costs.layers[i].runs_once) each[i] = all[i] = -1;
  }
  return {{}, std::move(each), std::move(all)};
}

/// Computes the cost of a stage for BestCut(): the memory or the time of the layers from `begin` to
/// `end`, the least over the ways to recompute that keep to the limit. Without a limit and
/// recomputation the time is a difference of prefix sums. Otherwise the sums of every pair (begin,
/// end) that is asked for are computed once and stored. If no cut keeps to the limit, a second
/// search finds the cut with the least memory for the error message.
class Cutter {
 public:
  Cutter(const Job& job, const ModelCosts& costs, const CostCutOptions& options)
      : costs_(costs),
        options_(options),
        names_(job.layers),
        ways_(options.recomputes ? std::vector<std::vector<int>>()
                                 : WaysOf(job, costs, !options.limits.empty())) {
    if (options.recomputes) {
      for (std::vector<int>& segments : ChosenSegments(job, options)) {
        if (ways_.empty() || ways_.back() != segments) ways_.push_back(std::move(segments));
        way_of_stage_.push_back(ways_.size() - 1);
      }
    }
    known_.resize(ways_.size() * costs.layers.size());
    for (const LayerCost& layer : costs.layers) {
      weights_.push_back(weights_.back() + layer.weight_bytes);
    }
    if (ways_.size() > 1 || !ways_[0].empty()) return;
    Sums sum;
    sums_.push_back(sum);
    for (const LayerCost& layer : costs.layers) {
      sum.seconds += layer.forward.seconds + layer.input_grad.seconds + layer.weight_grad.seconds;
      sum.parameters += layer.parameters;
      sums_.push_back(sum);
    }
    sums_.back().seconds += costs.loss.forward.seconds + costs.loss.input_grad.seconds;
  }

  std::vector<int> Cut() const {
    const bool is_limited = !options_.limits.empty();
    const std::vector<int> bounds = Best(options_.by_memory, is_limited);
    if (!bounds.empty()) return bounds;
    Refuse(Best(/*by_memory=*/true, /*is_limited=*/false));
  }

 private:
  int stages() const { return static_cast<int>(options_.settings.size()); }
  double SlownessOf(int stage) const {
    return options_.slowness.empty() ? 1 : options_.slowness[stage];
  }
  /// The bytes by which the stage's limit is below the largest one.
  int64_t MissingOf(int stage) const {
    return options_.limits.empty() ? 0 : std::ranges::max(options_.limits) - options_.limits[stage];
  }

  /// Reports the cut that is least above the limits, and the stage that is farthest above its own.
  [[noreturn]] void Refuse(const std::vector<int>& least) const {
    int worst = 0;
    int64_t most = -1;
    for (int s = 0; s < stages(); ++s) {
      const int64_t needed = *CostOf(s, least[s], least[s + 1], /*by_memory=*/true, false);
      if (needed <= most) continue;
      most = needed;
      worst = s;
    }
    const auto [low, high] = std::ranges::minmax(options_.limits);
    const auto bytes = [](int64_t count) { return FormatBytes(static_cast<double>(count)); };
    throw ConfigError(Str("memory: no cut into ", Plural(stages(), "stage"), " keeps to ",
                          low == high ? Str(bytes(high), " on each") : "the limit of each rank",
                          "; the least is ", bytes(most - MissingOf(worst)),
                          low == high ? ""
                                      : Str(" on rank ", options_.stage_ranks[worst],
                                            ", whose limit is ", bytes(options_.limits[worst])),
                          ", with the cuts ", names_.Text(least, ", "),
                          "; recompute, smaller micro-batches or more stages need less"));
  }

  std::vector<int> Best(bool by_memory, bool is_limited) const {
    const PartCost cost = [&](int stage, int begin, int end) {
      return CostOf(stage, begin, end, by_memory, is_limited);
    };
    return BestCut(static_cast<int>(costs_.layers.size()), stages(), cost);
  }

  /// The least time (or memory) of a stage over the ways that keep to the limit; nothing if none
  /// does.
  std::optional<int64_t> CostOf(int stage, int begin, int end, bool by_memory,
                                bool is_limited) const {
    const bool is_sum = !by_memory && !is_limited && begin > 0 && !sums_.empty();
    if (is_sum) {
      return TimeOf(stage, sums_[end].seconds - sums_[begin].seconds,
                    sums_[end].parameters - sums_[begin].parameters, begin, end);
    }
    const int64_t limit = is_limited ? options_.limits[stage] : 0;
    if (limit > 0 && weights_[end] - weights_[begin] > limit) return std::nullopt;
    std::optional<int64_t> least;
    for (size_t way = 0; way < ways_.size(); ++way) {
      if (!way_of_stage_.empty() && way_of_stage_[stage] != way) continue;
      const StageCost& sum = SumOf(way, begin, end);
      const int64_t bytes = StageMemory(costs_, sum, options_.settings[stage]);
      if (limit > 0 && bytes > limit) continue;
      const int64_t cost = by_memory ? bytes + MissingOf(stage)
                                     : TimeOf(stage, sum.seconds(), sum.parameters, begin, end);
      least = std::min(least.value_or(cost), cost);
    }
    return least;
  }

  /// SumLayers(), computed once for all stages. It stores 256 bytes for each way and each pair of
  /// layers that is asked for.
  const StageCost& SumOf(size_t way, int begin, int end) const {
    std::vector<StageCost>& ends = known_[way * costs_.layers.size() + begin];
    for (int next = begin + static_cast<int>(ends.size()) + 1; next <= end; ++next) {
      ends.push_back(SumLayers(costs_, begin, next, ways_[way]));
    }
    return ends[end - begin - 1];
  }

  int64_t TimeOf(int stage, double each, int64_t parameters, int begin, int end) const {
    if (begin == 0) each += costs_.input_seconds;
    if (end == static_cast<int>(costs_.layers.size())) each += costs_.target_seconds;
    const double once = static_cast<double>(parameters) *
                        (costs_.update_seconds + costs_.norm_seconds + costs_.clear_seconds);
    const double seconds = static_cast<double>(options_.micro_batches) * each + once;
    return std::llround(seconds * kPicoseconds * SlownessOf(stage));
  }

  /// The sums over all layers before one.
  struct Sums {
    double seconds = 0;
    int64_t parameters = 0;
  };

  const ModelCosts& costs_;
  const CostCutOptions& options_;
  const CutNames names_;
  std::vector<Sums>
      sums_;  ///< set if the time of a stage, except the first, is a difference of sums; else empty
  std::vector<int64_t> weights_ = {0};  ///< bytes of the weights of all layers before one
  std::vector<std::vector<int>> ways_;
  std::vector<size_t> way_of_stage_;  ///< empty: each stage may take any way
  mutable std::vector<std::vector<StageCost>>
      known_;  ///< by way and first layer: the sums for each end
};

/// True if the list is too long for tables of all pairs of layers, and the time of a stage is the
/// sum of its layers' times: nothing is recomputed, and memory does not matter.
bool IsLongSum(const Job& job, const ModelCosts& costs, const CostCutOptions& options) {
  constexpr double kMostPairs = 1 << 22;
  using Method = RecomputeSpec::Method;
  const Method method = job.recompute.method;
  const auto layers = static_cast<double>(costs.layers.size());
  const auto stages = static_cast<double>(options.settings.size());
  return !options.by_memory && options.limits.empty() &&
         stages * layers * layers / 2 > kMostPairs &&
         (method == Method::kNone || method == Method::kAuto);
}

/// Cuts a list into one part for each entry of `slowness` so that the part which takes longest, its
/// weight times its slowness, takes as little as possible. Bisection finds the smallest limit of
/// that time for which Within() finds a cut. Taking as many items as fit, part by part, would not
/// do: each part needs at least one item, and a slow part may not be able to take a heavy one.
class SpeedCutter {
 public:
  SpeedCutter(const std::vector<int64_t>& weights, const std::vector<double>& slowness)
      : weights_(weights), slowness_(slowness), items_(static_cast<int>(weights.size())) {}

  std::vector<int> Cut() const {
    constexpr int kRounds = 60;  // the limit is then exact to the last picosecond
    double low = 0, high = 0;
    for (const int64_t weight : weights_) high += static_cast<double>(weight);
    high *= std::ranges::max(slowness_);
    std::vector<int> best = Within(high);
    for (int round = 0; round < kRounds; ++round) {
      const double middle = (low + high) / 2;
      std::vector<int> bounds = Within(middle);
      (bounds.empty() ? low : high) = middle;
      if (!bounds.empty()) best = std::move(bounds);
    }
    return best;
  }

 private:
  /// Returns the bounds of a cut in which no part takes longer than the limit; {} if there is no
  /// such cut. From the last part to the first, it finds the items that a part may begin with so
  /// that it and the parts behind it can hold all that follow. Then each part, from the first on,
  /// takes as many items as it can.
  std::vector<int> Within(double limit) const {
    const auto parts = static_cast<int>(slowness_.size());
    // By part and first item: the last end that part can have, if the parts from it on can hold
    // all items from there on; else 0.
    std::vector<std::vector<int>> ends(slowness_.size(), std::vector<int>(weights_.size() + 1, 0));
    for (int part = parts - 1; part >= 0; --part) {
      int end = items_;  // moves down with the first item
      double sum = 0;
      std::vector<int> last(weights_.size() + 1, 0);  // the last end up to one from which all fits
      for (int at = 1; at <= items_; ++at) {
        const bool fits = part + 1 == parts ? at == items_ : ends[part + 1][at] > 0;
        last[at] = fits ? at : last[at - 1];
      }
      for (int begin = items_ - 1; begin >= 0; --begin) {
        sum += static_cast<double>(weights_[begin]);
        while (end > begin && sum * slowness_[part] > limit) {
          sum -= static_cast<double>(weights_[--end]);
        }
        if (last[end] > begin) ends[part][begin] = last[end];
      }
    }
    std::vector<int> bounds = {0};
    for (int part = 0; part < parts; ++part) {
      if (ends[part][bounds.back()] == 0) return {};
      bounds.push_back(ends[part][bounds.back()]);
    }
    return bounds;
  }

  const std::vector<int64_t>& weights_;
  const std::vector<double>& slowness_;
  const int items_;
};

/// Cuts a long list by Balanced(), or where ranks differ by SpeedCutter. Only the first stage
/// is no exact sum: it computes no input gradients up to its first trainable layer, which is
/// assumed to be on it.
std::vector<int> CutLongSum(const ModelCosts& costs, const CostCutOptions& options) {
  const double once = costs.update_seconds + costs.norm_seconds + costs.clear_seconds;
  std::vector<int64_t> weights;
  bool gives_gradient = false;
  for (const LayerCost& layer : costs.layers) {
    double each = layer.forward.seconds + layer.weight_grad.seconds;
    if (gives_gradient) each += layer.input_grad.seconds;
    gives_gradient |= layer.parameters > 0;
    if (weights.empty()) each += costs.input_seconds;
    if (weights.size() + 1 == costs.layers.size()) {
      each += costs.loss.forward.seconds + costs.loss.input_grad.seconds + costs.target_seconds;
    }
    const double seconds = static_cast<double>(options.micro_batches) * each +
                           static_cast<double>(layer.parameters) * once;
    weights.push_back(std::llround(seconds * kPicoseconds));
  }
  if (!options.slowness.empty()) return SpeedCutter(weights, options.slowness).Cut();
  return Balanced(std::span<const int64_t>(weights), static_cast<int64_t>(options.settings.size()));
}

}  // namespace

std::vector<int> CutByCosts(const Job& job, const ModelCosts& costs,
                            const CostCutOptions& options) {
  if (IsLongSum(job, costs, options)) return CutLongSum(costs, options);
  return Cutter(job, costs, options).Cut();
}

}  // namespace strata::partition
