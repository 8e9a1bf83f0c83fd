// CutTable: finds the cheapest of all cuts without an empty part that a problem allows. It is
// dynamic programming over the suffixes of the list: row j holds, for every place of bound j, the
// best cost of the parts after it and the best place of bound j + 1. The problem defines the cost
// of a cut: the sum of the costs of its parts, or the largest. With P parts and windows of W places
// a row takes O(W^2) calls of Of(), or O(W log W) if the problem is Monge (divide and conquer over
// the row).
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/check.h"

namespace strata::partition {

/// The places that a bound can take, from `first` to `last`.
struct Window {
  int first = 0;
  int last = 0;
  size_t size() const { return static_cast<size_t>(last - first + 1); }
  size_t Index(int place) const { return static_cast<size_t>(place - first); }
};

/// The windows of the bounds for all cuts of `items` items without an empty part.
inline std::vector<Window> AllWindows(int items, int parts) {
  std::vector<Window> windows = {{0, 0}};
  for (int j = 1; j < parts; ++j) windows.push_back({j, items - (parts - j)});
  windows.push_back({items, items});
  return windows;
}

/// A Problem has the members
///   using Cost;                             a cost; Cost{} is the least one and that of no parts
///   const std::vector<Window>& windows();   by bound; those of the first and last have one place
///   std::optional<Cost> Of(int part, int begin, int end);   the cost of a part; nothing if it is
///                                                           not allowed
///   static Cost Join(Cost part, Cost rest);   the cost of both, at least that of each
///   static constexpr bool kIsMonge;
///   bool AreAbove(int begin, int end, Cost least);   optional: true if all parts from `begin` to
///                                                    `end` or further cost more than `least`
/// In a Monge problem the costs are a Monge array, so the best ends of a row ascend with the
/// begins. Every place of its windows must lead to an allowed cut, and no end after an end that is
/// not allowed may be allowed.
///
/// Among equally cheap cuts each bound, from the first on, is as late as some best cut of the items
/// after it permits. If costs are sums, these are the latest bounds, compared from the first.
template <class Problem>
class CutTable {
 public:
  explicit CutTable(const Problem& problem) : problem_(problem) {}

  /// Returns the bounds; {} if no cut is allowed.
  std::vector<int> Solve() {
    const int parts = static_cast<int>(problem_.windows().size()) - 1;
    best_ends_.resize(static_cast<size_t>(parts) + 1);
    best_ends_.back() = {window(parts).first};
    costs_ = {Cost{}};  // there are no parts after the last bound
    for (int j = parts - 1; j >= 0; --j) {
      next_ = std::exchange(costs_, std::vector<Cost>(window(j).size()));
      best_ends_[j].assign(window(j).size(), kNone);
      SolveRows(j, window(j), window(j + 1));
    }
    std::vector<int> bounds = {window(0).first};
    if (BestEnd(0, bounds[0]) == kNone) return {};
    for (int j = 0; j < parts; ++j) bounds.push_back(BestEnd(j, bounds.back()));
    return bounds;
  }

  /// The cost of the cut that Solve() found.
  typename Problem::Cost cost() const { return costs_.front(); }

 private:
  using Cost = typename Problem::Cost;
  static constexpr int kNone = -1;

  const Window& window(int j) const { return problem_.windows()[j]; }
  /// The best place of bound j + 1 when bound j is at `place`; kNone if there is none.
  int& BestEnd(int j, int place) { return best_ends_[j][window(j).Index(place)]; }

  /// Solves the rows of bound j whose begins lie in `begins`. Their best ends are known to lie in
  /// `ends`.
  void SolveRows(int j, Window begins, Window ends) {
    if constexpr (!Problem::kIsMonge) {
      for (int begin = begins.first; begin <= begins.last; ++begin) SolveRow(j, begin, ends);
      return;
    }
    if (begins.first > begins.last) return;
    const int middle = begins.first + (begins.last - begins.first) / 2;
    SolveRow(j, middle, ends);
    const int best = BestEnd(j, middle);
    STRATA_CHECK(best != kNone) << "bound " << j << " at " << middle << " leads nowhere";
    SolveRows(j, {begins.first, middle - 1}, {ends.first, best});
    SolveRows(j, {middle + 1, begins.last}, {best, ends.last});
  }

  void SolveRow(int j, int begin, Window ends) {
    const Window& behind = window(j + 1);
    int best = kNone;
    Cost least{};
    for (int end = std::max(ends.first, begin + 1); end <= ends.last; ++end) {
      [[maybe_unused]] const bool has_one = best != kNone;
      if constexpr (requires { problem_.AreAbove(begin, end, least); }) {
        if (has_one && problem_.AreAbove(begin, end, least)) break;
      }
      const Cost& rest = next_[behind.Index(end)];
      if constexpr (!Problem::kIsMonge) {
        if (BestEnd(j + 1, end) == kNone || (has_one && rest > least)) continue;
      }
      const std::optional<Cost> part = problem_.Of(j, begin, end);
      if (!part && Problem::kIsMonge) break;
      if (!part) continue;
      const Cost cost = Problem::Join(*part, rest);
      if (best != kNone && cost > least) continue;
      least = cost;
      best = end;
    }
    costs_[window(j).Index(begin)] = least;
    BestEnd(j, begin) = best;
  }

  const Problem& problem_;
  /// The least costs of the parts after a bound, by its place: after the bound at hand, and after
  /// the next one.
  std::vector<Cost> costs_, next_;
  std::vector<std::vector<int>> best_ends_;
};

}  // namespace strata::partition
