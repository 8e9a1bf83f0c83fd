#include "engine/cost/recompute_front.h"

#include <algorithm>
#include <array>
#include <span>
#include <tuple>
#include <utility>

#include "engine/cost/stage_runs.h"

namespace strata {
namespace {

/// A solution for the layers from some layer to the end of the stage.
struct Rest {
  StageCost cost;
  Run first;        ///< the first run of this rest
  size_t next = 0;  ///< index of the solution behind that run, among those that begin there
  bool has_recomputed = false;  ///< true if one of its runs is recomputed
};

using Memory = std::array<int64_t, 6>;

Memory MemoryOf(const StageCost& cost) {
  return {cost.kept_bytes,    cost.recomputed_bytes, cost.forward_peak,
          cost.backward_peak, cost.input_grad_peak,  cost.recompute_peak};
}

/// True if `a` is at least as good as `b` in every price, whatever runs come before both.
bool IsAsGood(const Rest& a, const Rest& b) {
  // A rest without a recomputed run makes the run before it the last recomputed one, which needs
  // more memory. And a stage without any segment has no R action, which is an advantage even if
  // layers take no time. So such rests are not compared with others.
  if (a.has_recomputed != b.has_recomputed) return false;
  // A kept run before a rest that begins with a kept run becomes one with it. That can cost more
  // than both: a run holds the gradients that it is given until its backward is done.
  if (!a.first.is_recomputed && b.first.is_recomputed) return false;
  if (a.cost.recompute.seconds > b.cost.recompute.seconds) return false;
  if (!a.cost.keeps_output && b.cost.keeps_output) return false;  // the output is held for the link
  const Memory mine = MemoryOf(a.cost), others = MemoryOf(b.cost);
  for (size_t i = 0; i < mine.size(); ++i) {
    if (mine[i] > others[i]) return false;
  }
  return true;
}

void SortBySeconds(std::vector<Rest>& rests) {
  std::ranges::stable_sort(rests, [](const Rest& a, const Rest& b) {
    const auto key = [](const Rest& rest) {
      return std::tuple(rest.cost.recompute.seconds, rest.has_recomputed, rest.cost.kept_bytes,
                        rest.cost.backward_peak);
    };
    return key(a) < key(b);
  });
}

/// Returns the solutions that no other one dominates. REQUIRES: `rests` are sorted by
/// SortBySeconds().
std::vector<Rest> BestOf(std::vector<Rest> rests) {
  std::vector<Rest> best;
  size_t last = 0;  // the last one that dominated another: it often dominates the next too
  for (Rest& rest : rests) {
    if (!best.empty() && IsAsGood(best[last], rest)) continue;
    const auto is_as_good = [&](const Rest& other) { return IsAsGood(other, rest); };
    const auto found = std::ranges::find_if(best, is_as_good);
    if (found == best.end()) {
      best.push_back(std::move(rest));
    } else {
      last = static_cast<size_t>(found - best.begin());
    }
  }
  return best;
}

/// Keeps `most` solutions, evenly spaced in their order, and the smallest of each memory price.
std::vector<Rest> Thinned(std::vector<Rest> rests, size_t most) {
  if (rests.size() <= most) return rests;
  std::vector<bool> stays(rests.size(), false);
  for (size_t k = 0; k < most; ++k)
    stays[k * (rests.size() - 1) / std::max<size_t>(most - 1, 1)] = true;
  for (size_t m = 0; m < Memory().size(); ++m) {
    const auto least = std::ranges::min_element(
        rests, {}, [&](const Rest& rest) { return MemoryOf(rest.cost)[m]; });
    stays[least - rests.begin()] = true;
  }
  std::vector<Rest> left;
  for (size_t i = 0; i < rests.size(); ++i) {
    if (stays[i]) left.push_back(std::move(rests[i]));
  }
  return left;
}

/// Reduces the solutions of a long stage before they are compared in pairs: among neighbours in
/// seconds only those with the smallest memory remain.
std::vector<Rest> Sampled(std::vector<Rest> rests, size_t most) {
  constexpr size_t kEach = 16;
  if (rests.size() <= kEach * most) return rests;
  const size_t size = (rests.size() + 4 * most - 1) / (4 * most);
  std::vector<Rest> left = {std::move(rests.front())};
  for (size_t begin = 1; begin < rests.size(); begin += size) {
    const auto group = std::span(rests).subspan(begin, std::min(size, rests.size() - begin));
    const auto kept = [](const Rest& rest) { return rest.cost.kept_bytes; };
    const auto all = [](const Rest& rest) {
      return rest.cost.kept_bytes + rest.cost.backward_peak + rest.cost.recomputed_bytes;
    };
    auto first = std::ranges::min_element(group, {}, kept);
    auto second = std::ranges::min_element(group, {}, all);
    if (second < first) std::swap(first, second);
    left.push_back(*first);
    if (second != first) left.push_back(*second);
  }
  return left;
}

/// Dynamic programming from the last layer of the stage to the first. Input: the costs of the
/// layers; output: the Pareto front of their segmentations. For each layer i it holds the best
/// solutions for the layers from i to the end. Each is a first run [i, k) in front of a solution
/// that begins at k; two kept runs in a row are left out, because they are one run. Dominated
/// solutions are dropped. With n layers and at most `most` solutions for each rest, it takes
/// O(n^2 * most) sums, and up to the square of the solutions of a rest in comparisons.
class Front {
 public:
  Front(const ModelCosts& costs, int begin, int end)
      : costs_(costs), stage_(costs, begin, end), rests_(static_cast<size_t>(end - begin) + 1) {
    Rest& none = At(end).emplace_back();
    none.cost = stage_.none();
    none.first = {end, end, /*is_recomputed=*/true};
  }

  std::vector<Recomputation> Find(size_t most) {
    for (int i = stage_.end() - 1; i >= stage_.begin(); --i) {
      std::vector<Rest> all = AllFrom(i);
      SortBySeconds(all);
      At(i) = Thinned(BestOf(Sampled(std::move(all), most)), most);
    }
    std::vector<Recomputation> ways;
    for (const Rest& rest : At(stage_.begin())) ways.push_back({SegmentsOf(rest), rest.cost});
    return ways;
  }

 private:
  std::vector<Rest>& At(int layer) { return rests_[layer - stage_.begin()]; }

  std::vector<Rest> AllFrom(int begin) {
    std::vector<Rest> all;
    bool runs_once = false;  // a layer of the run must not be recomputed
    for (int end = begin + 1; end <= stage_.end(); ++end) {
      runs_once |= costs_.layers[static_cast<size_t>(end) - 1].runs_once;
      for (const bool is_recomputed : {false, true}) {
        if (is_recomputed && runs_once) continue;
        const Run run = {begin, end, is_recomputed};
        const RunCost cost = stage_.CostOf(run);
        for (size_t k = 0; k < At(end).size(); ++k) {
          const Rest& rest = At(end)[k];
          // Two kept runs in a row are one run.
          if (!is_recomputed && !rest.first.is_recomputed) continue;
          all.push_back({StageRuns::Add(cost, rest.cost, is_recomputed && !rest.has_recomputed),
                         run, k, is_recomputed || rest.has_recomputed});
        }
      }
    }
    return all;
  }

  std::vector<int> SegmentsOf(const Rest& whole) {
    std::vector<int> segments;
    int next = 0;
    for (const Rest* rest = &whole;; rest = &At(rest->first.end)[rest->next]) {
      const Run& run = rest->first;
      segments.resize(static_cast<size_t>(run.end - stage_.begin()),
                      run.is_recomputed ? next++ : -1);
      if (run.end == stage_.end()) return segments;
    }
  }

  const ModelCosts& costs_;
  const StageRuns stage_;
  std::vector<std::vector<Rest>> rests_;  ///< the solutions from each layer of the stage to its end
};

}  // namespace

std::vector<Recomputation> RecomputeFront(const ModelCosts& costs, int begin, int end,
                                          size_t most) {
  return Front(costs, begin, end).Find(most);
}

}  // namespace strata
