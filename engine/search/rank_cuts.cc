#include "engine/search/rank_cuts.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "engine/plan/cut/all_cuts.h"
#include "engine/schedule/program_search.h"

namespace strata {
namespace {

constexpr double kMostCuts = 3e5;
/// Keeps so many of the best cuts before cuts that are alike are removed.
constexpr size_t kMostKept = 4000;
/// Cuts are alike if each pair of their bounds differs by at most this share of the layers' time.
constexpr double kAlike = 0.005;

/// Computes the price of a cut. Prefix sums over the layers give each stage's work and memory in
/// constant time; a rank's price adds up its stages and the wait for its first input. CutsByRank()
/// enumerates all cuts, keeps the kMostKept cheapest in a heap, sorts them, and skips those that
/// are alike. The cost is the number of cuts (at most kMostCuts) times the number of stages.
class Pricer {
 public:
  Pricer(const ModelCosts& costs, const RankCutOptions& options)
      : costs_(costs),
        options_(options),
        ranks_(static_cast<size_t>(*std::ranges::max_element(options.stage_ranks)) + 1),
        sums_(1) {
    const double once = costs.update_seconds + costs.norm_seconds + costs.clear_seconds;
    for (const LayerCost& layer : costs.layers) {
      Sums sum = sums_.back();
      const auto parameters = static_cast<double>(layer.parameters);
      sum.forward += layer.forward.seconds;
      sum.micro_batch +=
          layer.forward.seconds + layer.input_grad.seconds + layer.weight_grad.seconds;
      sum.once += parameters * once;
      const double state =
          parameters * costs.state_bytes + static_cast<double>(layer.extra_state_bytes);
      sum.bytes +=
          static_cast<double>(layer.weight_bytes + layer.gradient_bytes) + state / options.owners;
      sums_.push_back(sum);
    }
  }

  double PriceOf(const std::vector<int>& bounds) {
    std::ranges::fill(ranks_, Rank());
    for (size_t s = 0; s + 1 < bounds.size(); ++s) {
      const Sums &before = sums_[bounds[s]], &end = sums_[bounds[s + 1]];
      Rank& rank = ranks_[options_.stage_ranks[s]];
      if (rank.wait < 0) rank.wait = before.forward;
      rank.micro_batch += end.micro_batch - before.micro_batch;
      rank.once += end.once - before.once;
      rank.bytes += end.bytes - before.bytes;
    }
    // The first stage computes no gradient of its input.
    ranks_[options_.stage_ranks[0]].micro_batch +=
        costs_.input_seconds - costs_.layers[0].input_grad.seconds;
    double seconds = 0, bytes = 0;
    for (const Rank& rank : ranks_) {
      seconds =
          std::max(seconds, rank.wait + options_.micro_batches * rank.micro_batch + rank.once);
      bytes = std::max(bytes, rank.bytes);
    }
    return schedule::Price(seconds, bytes, options_.memory_weight);
  }

  /// True if the layers between each bound of `a` and the same bound of `b` take next to no time.
  bool AreAlike(const std::vector<int>& a, const std::vector<int>& b) const {
    const double most = kAlike * sums_.back().micro_batch;
    return std::ranges::equal(a, b, [&](int left, int right) {
      return std::abs(sums_[left].micro_batch - sums_[right].micro_batch) <= most;
    });
  }

 private:
  /// Prefix sums: the totals of all layers before one.
  struct Sums {
    double forward = 0, micro_batch = 0, once = 0, bytes = 0;
  };
  struct Rank {
    double wait = -1, micro_batch = 0, once = 0, bytes = 0;
  };

  const ModelCosts& costs_;
  const RankCutOptions& options_;
  std::vector<Rank> ranks_;
  std::vector<Sums> sums_;
};

}  // namespace

std::vector<RankCut> CutsByRank(const ModelCosts& costs, const RankCutOptions& options) {
  const auto layers = static_cast<int>(costs.layers.size());
  const auto stages = static_cast<int>(options.stage_ranks.size());
  std::vector<RankCut> cuts;
  if (stages > layers || partition::CountCuts(layers, stages, 2 * kMostCuts) > kMostCuts) {
    return cuts;
  }
  const auto is_before = [](const RankCut& a, const RankCut& b) {
    return std::tie(a.price, a.bounds) < std::tie(b.price, b.bounds);
  };
  Pricer pricer(costs, options);
  partition::ForEachCut(layers, stages, [&](const std::vector<int>& bounds) {
    const double price = pricer.PriceOf(bounds);
    if (cuts.size() == kMostKept) {
      if (price >= cuts.front().price) return;  // equal price: the earlier bounds stay
      std::ranges::pop_heap(cuts, is_before);
      cuts.pop_back();
    }
    cuts.push_back({bounds, price});
    std::ranges::push_heap(cuts, is_before);
  });
  std::ranges::sort_heap(cuts, is_before);
  std::vector<RankCut> distinct;
  for (RankCut& cut : cuts) {
    if (static_cast<int>(distinct.size()) == options.most) break;
    const bool is_new = std::ranges::none_of(
        distinct, [&](const RankCut& other) { return pricer.AreAlike(cut.bounds, other.bounds); });
    if (is_new) distinct.push_back(std::move(cut));
  }
  return distinct;
}

}  // namespace strata
