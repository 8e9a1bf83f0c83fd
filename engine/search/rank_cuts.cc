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

}  // namespace

CutPricer::CutPricer(const ModelCosts& costs, const RankCutOptions& options)
    : costs_(costs),
      options_(options),
      ranks_(static_cast<size_t>(*std::ranges::max_element(options.stage_ranks)) + 1),
      sums_(1) {
  const auto trains = [](const LayerCost& layer) { return layer.parameters > 0; };
  const auto first = std::ranges::find_if(costs.layers, trains);
  const auto end = first == costs.layers.end() ? costs.layers.begin() : first;
  for (auto layer = costs.layers.begin(); layer <= end; ++layer) {
    skipped_ += layer->input_grad.seconds;
  }
  for (const LayerCost& layer : costs.layers) {
    Sums sum = sums_.back();
    const auto parameters = static_cast<double>(layer.parameters);
    sum.forward += layer.forward.seconds;
    sum.backward += layer.input_grad.seconds + layer.weight_grad.seconds;
    sum.begin += parameters * (costs.clear_seconds + costs.update_seconds / options.owners);
    sum.norm += parameters * costs.norm_seconds / options.owners;
    const double state =
        parameters * costs.state_bytes + static_cast<double>(layer.extra_state_bytes);
    sum.bytes +=
        static_cast<double>(layer.weight_bytes + layer.gradient_bytes) + state / options.owners;
    sums_.push_back(sum);
  }
}

double CutPricer::PriceOf(const std::vector<int>& bounds, bool splits) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    ranks_[r] = {.slowness = options_.slowness.empty() ? 1 : options_.slowness[r]};
  }
  double forward = 0, backward = 0;  // of all stages so far, each on its rank
  for (size_t s = 0; s + 1 < bounds.size(); ++s) {
    const Sums &before = sums_[bounds[s]], &end = sums_[bounds[s + 1]];
    Rank& rank = ranks_[options_.stage_ranks[s]];
    if (rank.wait < 0) {
      rank.wait = forward;
      if (!splits && s > 0) rank.drain = backward - skipped_ * FirstRank().slowness;
    }
    forward += rank.slowness * (end.forward - before.forward);
    backward += rank.slowness * (end.backward - before.backward);
    rank.work += end.forward + end.backward - before.forward - before.backward;
    rank.begin += end.begin - before.begin;
    rank.norm += end.norm - before.norm;
    rank.bytes += end.bytes - before.bytes;
  }
  FirstRank().work += costs_.input_seconds - skipped_;
  double seconds = 0, bytes = 0;
  for (const Rank& rank : ranks_) {
    const double done = std::max(rank.wait, rank.slowness * rank.begin) +
                        options_.micro_batches * rank.slowness * rank.work;
    seconds = std::max(seconds, done + std::max(rank.slowness * rank.norm, rank.drain));
    bytes = std::max(bytes, rank.bytes);
  }
  return schedule::Price(seconds, bytes, options_.memory_weight);
}

bool CutPricer::AreAlike(const std::vector<int>& a, const std::vector<int>& b) const {
  const double most = kAlike * (sums_.back().forward + sums_.back().backward);
  return std::ranges::equal(a, b, [&](int left, int right) {
    const Sums &one = sums_[left], &other = sums_[right];
    return std::abs(one.forward + one.backward - other.forward - other.backward) <= most;
  });
}

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
  CutPricer pricer(costs, options);
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
