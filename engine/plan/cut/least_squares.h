// LeastSquares: of all cuts without an empty part that a problem allows, the one with the least sum
// of the squares of what its parts cost; among equals the one whose bounds are the latest, compared
// from the first. Dynamic programming over the suffixes. Private to the package.
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

/// A Problem has
///   using Cost;                             the type of sums of squares
///   const std::vector<Window>& windows();   of each bound; the first and the last have one place
///   std::optional<Cost> Squared(int part, int begin, int end);  nothing: it is not allowed
///   static constexpr bool kIsMonge;
/// A Monge problem has squares that are a Monge array, so that the best ends of a row ascend; every
/// place of its windows leads to an allowed cut, and behind an end that is not allowed is none that
/// is.
template <class Problem>
class LeastSquares {
 public:
  explicit LeastSquares(const Problem& problem) : problem_(problem) {}

  /// The bounds; empty where no cut is allowed.
  std::vector<int> Solve() {
    const int parts = static_cast<int>(problem_.windows().size()) - 1;
    choices_.resize(static_cast<size_t>(parts) + 1);
    choices_.back() = {window(parts).first};
    costs_ = {Cost{}};  // nothing lies behind the last bound
    for (int j = parts - 1; j >= 0; --j) {
      next_ = std::exchange(costs_, std::vector<Cost>(window(j).size()));
      choices_[j].assign(window(j).size(), kNone);
      SolveRows(j, window(j), window(j + 1));
    }
    std::vector<int> bounds = {window(0).first};
    for (int j = 0; j < parts; ++j) bounds.push_back(Choice(j, bounds.back()));
    return bounds[1] == kNone ? std::vector<int>() : bounds;
  }

 private:
  using Cost = typename Problem::Cost;
  static constexpr int kNone = -1;

  const Window& window(int j) const { return problem_.windows()[j]; }
  /// Where bound j + 1 is the best when bound j is at `place`.
  int& Choice(int j, int place) { return choices_[j][window(j).Index(place)]; }

  /// Of the rows `begins` of bound j, knowing that their ends lie within `ends`.
  void SolveRows(int j, Window begins, Window ends) {
    if constexpr (!Problem::kIsMonge) {
      for (int begin = begins.first; begin <= begins.last; ++begin) SolveRow(j, begin, ends);
      return;
    }
    if (begins.first > begins.last) return;
    const int middle = begins.first + (begins.last - begins.first) / 2;
    SolveRow(j, middle, ends);
    const int best = Choice(j, middle);
    STRATA_CHECK(best != kNone) << "bound " << j << " at " << middle << " leads nowhere";
    SolveRows(j, {begins.first, middle - 1}, {ends.first, best});
    SolveRows(j, {middle + 1, begins.last}, {best, ends.last});
  }

  void SolveRow(int j, int begin, Window ends) {
    const Window& behind = window(j + 1);
    int best = kNone;
    Cost least{};
    for (int end = std::max(ends.first, begin + 1); end <= ends.last; ++end) {
      const std::optional<Cost> squared = problem_.Squared(j, begin, end);
      if (!squared && Problem::kIsMonge) break;
      if (!squared || (!Problem::kIsMonge && Choice(j + 1, end) == kNone)) continue;
      const Cost cost = *squared + next_[behind.Index(end)];
      if (best != kNone && cost > least) continue;
      least = cost;
      best = end;
    }
    costs_[window(j).Index(begin)] = least;
    Choice(j, begin) = best;
  }

  const Problem& problem_;
  /// By place of the bound at hand and of the next: the least sum of squares of the parts behind.
  std::vector<Cost> costs_, next_;
  std::vector<std::vector<int>> choices_;
};

}  // namespace strata::partition
