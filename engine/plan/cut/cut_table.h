// CutTable: of all cuts without an empty part that a problem allows, the one that costs the least.
// Dynamic programming over the suffixes. What a cut costs is the problem's affair: the sum of what
// its parts cost, or the largest.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/check.h"

namespace strata::partition {

/// The places from `first` to `last` that a bound can take.
struct Window {
  int first = 0;
  int last = 0;
  size_t size() const { return static_cast<size_t>(last - first + 1); }
  size_t Index(int place) const { return static_cast<size_t>(place - first); }
};

/// The places of the bounds of all cuts of `items` without an empty part.
inline std::vector<Window> AllWindows(int items, int parts) {
  std::vector<Window> windows = {{0, 0}};
  for (int j = 1; j < parts; ++j) windows.push_back({j, items - (parts - j)});
  windows.push_back({items, items});
  return windows;
}

/// A Problem has
///   using Cost;                             of some parts, at least Cost{}, which no parts cost
///   const std::vector<Window>& windows();   of each bound; the first and the last have one place
///   std::optional<Cost> Of(int part, int begin, int end);   nothing: it is not allowed
///   static Cost Join(Cost part, Cost rest);                 at least the cost of both
///   static constexpr bool kIsMonge;
///   bool AreAbove(int begin, int end, Cost least);   may be left out: whether all parts from
///                                                    `begin` to `end` or further cost more
/// A Monge problem has costs that are a Monge array, so that the best ends of a row ascend; every
/// place of its windows leads to an allowed cut, and behind an end that is not allowed is none that
/// is.
///
/// Of equals each bound, from the first on, is as late as a best cut of what lies behind it lets it
/// be. With sums that are the latest bounds, compared from the first.
template <class Problem>
class CutTable {
 public:
  explicit CutTable(const Problem& problem) : problem_(problem) {}

  /// The bounds; empty where no cut is allowed.
  std::vector<int> Solve() {
    const int parts = static_cast<int>(problem_.windows().size()) - 1;
    best_ends_.resize(static_cast<size_t>(parts) + 1);
    best_ends_.back() = {window(parts).first};
    costs_ = {Cost{}};  // nothing lies behind the last bound
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

  /// Of the cut that Solve() found.
  typename Problem::Cost cost() const { return costs_.front(); }

 private:
  using Cost = typename Problem::Cost;
  static constexpr int kNone = -1;

  const Window& window(int j) const { return problem_.windows()[j]; }
  /// Where bound j + 1 is the best when bound j is at `place`.
  int& BestEnd(int j, int place) { return best_ends_[j][window(j).Index(place)]; }

  /// Of the rows `begins` of bound j, knowing that their ends lie within `ends`.
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
  /// By place of the bound at hand and of the next: the least cost of the parts behind.
  std::vector<Cost> costs_, next_;
  std::vector<std::vector<int>> best_ends_;
};

}  // namespace strata::partition
