#include "engine/plan/balance.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::partition {
namespace {

/// Cells of 4 bytes in the table of choices.
constexpr size_t kMaxCells = size_t{1} << 28;

/// The places from `first` to `last` that a bound can take.
struct Window {
  int first = 0;
  int last = 0;
  size_t size() const { return static_cast<size_t>(last - first + 1); }
};

/// `Sum` is uint64_t for sums below 2^63, else UInt128: four times as slow.
template <class Sum>
class Solver {
 public:
  Solver(const std::vector<UInt128>& weights, int parts);
  std::vector<int> Solve();

 private:
  using Cost = decltype(Square(Sum()));

  /// The heaviest part of the best cut.
  Sum LeastLimit() const;
  /// Whether as many parts, some of them perhaps empty, hold all items without exceeding `limit`.
  bool Fits(Sum limit) const;
  /// The furthest end of a part that begins at `begin`.
  int FurthestEnd(int begin, Sum limit) const;
  /// The earliest begin of a part that ends at `end`.
  int EarliestBegin(int end, Sum limit) const;

  void FindWindows();
  void CheckMemory() const;
  /// Finds costs_ and choices_ of the rows from `begin.first` to `begin.last` of bound `j`, knowing
  /// that their ends lie within `end`. `next` holds the costs behind bound j + 1.
  void SolveRows(int j, Window begin, Window end, const std::vector<Cost>& next);

  const int items_;
  const int parts_;
  std::vector<Sum> prefix_;  ///< prefix_[i] = sum of the first i weights
  Sum limit_ = 0;            ///< what no part may exceed
  /// Bound j of every cut without empty parts and within the limit lies in windows_[j], and every
  /// place there belongs to such a cut.
  std::vector<Window> windows_;
  /// For the bound at hand: the least sum of squares of the parts behind it, by place in its
  /// window.
  std::vector<Cost> costs_;
  /// choices_[j]: by the place of bound j in its window, the latest of the best places of bound
  /// j+1.
  std::vector<std::vector<int>> choices_;
};

template <class Sum>
Solver<Sum>::Solver(const std::vector<UInt128>& weights, int parts)
    : items_(static_cast<int>(weights.size())), parts_(parts), prefix_(weights.size() + 1) {
  for (size_t i = 0; i < weights.size(); ++i) {
    prefix_[i + 1] = prefix_[i] + static_cast<Sum>(weights[i]);
  }
}

template <class Sum>
int Solver<Sum>::FurthestEnd(int begin, Sum limit) const {
  const Sum most = prefix_[static_cast<size_t>(begin)] + limit;
  const auto beyond = std::upper_bound(prefix_.begin() + begin, prefix_.end(), most);
  return static_cast<int>(beyond - prefix_.begin()) - 1;
}

template <class Sum>
int Solver<Sum>::EarliestBegin(int end, Sum limit) const {
  const Sum whole = prefix_[static_cast<size_t>(end)];
  const Sum least = whole > limit ? whole - limit : 0;
  const auto first = std::lower_bound(prefix_.begin(), prefix_.begin() + end, least);
  return static_cast<int>(first - prefix_.begin());
}

template <class Sum>
bool Solver<Sum>::Fits(Sum limit) const {
  int end = 0;
  for (int part = 0; part < parts_ && end < items_; ++part) end = FurthestEnd(end, limit);
  return end == items_;
}

template <class Sum>
Sum Solver<Sum>::LeastLimit() const {
  Sum low = 0, high = prefix_.back();
  while (low < high) {
    const Sum middle = low + (high - low) / 2;
    if (Fits(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

template <class Sum>
void Solver<Sum>::FindWindows() {
  windows_.resize(static_cast<size_t>(parts_) + 1);
  windows_.front().last = 0;
  windows_.back().first = items_;
  for (int j = 1; j <= parts_; ++j) {
    const int furthest = FurthestEnd(windows_[static_cast<size_t>(j) - 1].last, limit_);
    windows_[static_cast<size_t>(j)].last = std::min(furthest, items_ - (parts_ - j));
  }
  for (int j = parts_ - 1; j >= 0; --j) {
    const int earliest = EarliestBegin(windows_[static_cast<size_t>(j) + 1].first, limit_);
    windows_[static_cast<size_t>(j)].first = std::max(earliest, j);
  }
}

template <class Sum>
void Solver<Sum>::CheckMemory() const {
  size_t cells = 0;
  for (const Window& window : windows_) cells += window.size();
  if (cells <= kMaxCells) return;
  throw ConfigError(Str("balancing ", FormatCount(items_), " items over ", FormatCount(parts_),
                        " parts needs more than ", FormatBytes(4.0 * kMaxCells),
                        "; join items first"));
}

template <class Sum>
void Solver<Sum>::SolveRows(int j, Window begin, Window end, const std::vector<Cost>& next) {
  if (begin.first > begin.last) return;
  const int middle = begin.first + (begin.last - begin.first) / 2;
  const int first = std::max(end.first, middle + 1);
  const int last = std::min(end.last, FurthestEnd(middle, limit_));
  STRATA_CHECK(first <= last) << "bound " << j << " at " << middle << " leads nowhere";
  const Window& behind = windows_[static_cast<size_t>(j) + 1];
  const auto cost_of = [&](int place) {
    const Sum weight = prefix_[static_cast<size_t>(place)] - prefix_[static_cast<size_t>(middle)];
    return Square(weight) + next[static_cast<size_t>(place - behind.first)];
  };
  int best = first;
  Cost least = cost_of(first);
  for (int place = first + 1; place <= last; ++place) {
    const Cost cost = cost_of(place);
    if (cost > least) continue;
    least = cost;
    best = place;
  }
  const auto row = static_cast<size_t>(middle - windows_[static_cast<size_t>(j)].first);
  costs_[row] = least;
  choices_[static_cast<size_t>(j)][row] = best;
  SolveRows(j, {begin.first, middle - 1}, {end.first, best}, next);
  SolveRows(j, {middle + 1, begin.last}, {best, end.last}, next);
}

template <class Sum>
std::vector<int> Solver<Sum>::Solve() {
  limit_ = LeastLimit();
  FindWindows();
  CheckMemory();
  choices_.resize(static_cast<size_t>(parts_));
  costs_ = {Cost{}};  // nothing lies behind the last bound
  for (int j = parts_ - 1; j >= 0; --j) {
    const Window& window = windows_[static_cast<size_t>(j)];
    const std::vector<Cost> next = std::move(costs_);
    costs_.assign(window.size(), Cost{});
    choices_[static_cast<size_t>(j)].resize(window.size());
    SolveRows(j, window, windows_[static_cast<size_t>(j) + 1], next);
  }
  std::vector<int> bounds = {0};
  for (size_t j = 0; j < choices_.size(); ++j) {
    bounds.push_back(choices_[j][static_cast<size_t>(bounds.back() - windows_[j].first)]);
  }
  return bounds;
}

}  // namespace

std::vector<int> Balance(const std::vector<UInt128>& weights, int parts) {
  STRATA_CHECK(parts >= 1 && static_cast<size_t>(parts) <= weights.size()) << parts;
  UInt128 total = 0;
  for (UInt128 weight : weights) total += weight;
  if (total >> 63 == 0) return Solver<uint64_t>(weights, parts).Solve();
  return Solver<UInt128>(weights, parts).Solve();
}

}  // namespace strata::partition
