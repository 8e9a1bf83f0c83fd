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
std::vector<std::vector<int>> WaysOf(const Job& job, const ModelCosts& costs, int64_t limit) {
  if (job.recompute.method != RecomputeSpec::Method::kAuto || limit == 0) return {SegmentsOf(job)};
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
                                 : WaysOf(job, costs, options.limit)) {
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
    const std::vector<int> bounds = Best(options_.by_memory, options_.limit);
    if (!bounds.empty()) return bounds;
    const std::vector<int> least = Best(/*by_memory=*/true, 0);
    int64_t needed = 0;
    for (size_t s = 0; s + 1 < least.size(); ++s) {
      const auto stage = static_cast<int>(s);
      needed = std::max(needed, *CostOf(stage, least[s], least[s + 1], /*by_memory=*/true, 0));
    }
    throw ConfigError(Str("memory: no cut into ", Plural(stages(), "stage"), " keeps to ",
                          FormatBytes(static_cast<double>(options_.limit)),
                          " on each; the least is ", FormatBytes(static_cast<double>(needed)),
                          ", with the cuts ", names_.Text(least, ", "),
                          "; recompute, smaller micro-batches or more stages need less"));
  }

 private:
  int stages() const { return static_cast<int>(options_.settings.size()); }

  std::vector<int> Best(bool by_memory, int64_t limit) const {
    const PartCost cost = [&](int stage, int begin, int end) {
      return CostOf(stage, begin, end, by_memory, limit);
    };
    return BestCut(static_cast<int>(costs_.layers.size()), stages(), cost);
  }

  /// The least time (or memory) of a stage over the ways that keep to the limit; nothing if none
  /// does.
  std::optional<int64_t> CostOf(int stage, int begin, int end, bool by_memory,
                                int64_t limit) const {
    const bool is_sum = !by_memory && limit == 0 && begin > 0 && !sums_.empty();
    if (is_sum) {
      return TimeOf(sums_[end].seconds - sums_[begin].seconds,
                    sums_[end].parameters - sums_[begin].parameters, begin, end);
    }
    if (limit > 0 && weights_[end] - weights_[begin] > limit) return std::nullopt;
    std::optional<int64_t> least;
    for (size_t way = 0; way < ways_.size(); ++way) {
      if (!way_of_stage_.empty() && way_of_stage_[stage] != way) continue;
      const StageCost& sum = SumOf(way, begin, end);
      const int64_t bytes = StageMemory(costs_, sum, options_.settings[stage]);
      if (limit > 0 && bytes > limit) continue;
      const int64_t cost = by_memory ? bytes : TimeOf(sum.seconds(), sum.parameters, begin, end);
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

  int64_t TimeOf(double each, int64_t parameters, int begin, int end) const {
    if (begin == 0) each += costs_.input_seconds;
    if (end == static_cast<int>(costs_.layers.size())) each += costs_.target_seconds;
    const double once = static_cast<double>(parameters) *
                        (costs_.update_seconds + costs_.norm_seconds + costs_.clear_seconds);
    const double seconds = static_cast<double>(options_.micro_batches) * each + once;
    return std::llround(seconds * kPicoseconds);
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
  return !options.by_memory && options.limit == 0 && stages * layers * layers / 2 > kMostPairs &&
         (method == Method::kNone || method == Method::kAuto);
}

/// Cuts a long list by Balanced(). Only the first stage is no exact sum: it computes no input
/// gradients up to its first trainable layer, which is assumed to be on it.
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
  return Balanced(std::span<const int64_t>(weights), static_cast<int64_t>(options.settings.size()));
}

}  // namespace

std::vector<int> CutByCosts(const Job& job, const ModelCosts& costs,
                            const CostCutOptions& options) {
  if (IsLongSum(job, costs, options)) return CutLongSum(costs, options);
  return Cutter(job, costs, options).Cut();
}

}  // namespace strata::partition
