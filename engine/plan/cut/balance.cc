#include "engine/plan/cut/balance.h"

#include <algorithm>
#include <optional>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/plan/cut/cut_table.h"

namespace strata::partition {
namespace {

/// The limit on the cells of 4 bytes in the table of best ends: 1 GiB.
constexpr size_t kMaxCells = size_t{1} << 28;

/// The problem for CutTable: cut weighted items into parts, none heavier than the least possible
/// heaviest part (limit_), with the least sum of squares. `Sum` is uint64_t for sums below 2^63,
/// else UInt128, which is four times as slow.
template <class Sum>
class Weighted {
 public:
  using Cost = decltype(Square(Sum()));
  static constexpr bool kIsMonge = true;

  Weighted(const std::vector<UInt128>& weights, int parts);

  /// The windows of the bounds. Bound j of every cut without empty parts and within the limit lies
  /// in windows()[j], and every place in a window belongs to such a cut.
  const std::vector<Window>& windows() const { return windows_; }
  static Cost Join(const Cost& part, const Cost& rest) { return part + rest; }
  std::optional<Cost> Of(int, int begin, int end) const {
    const Sum weight = prefix_[end] - prefix_[begin];
    return weight > limit_ ? std::nullopt : std::optional(Square(weight));
  }

 private:
  /// The weight of the heaviest part in the best cut, by binary search over Fits().
  Sum LeastLimit() const;
  /// True if `parts_` parts, some of them perhaps empty, can hold all items without exceeding
  /// `limit`.
  bool Fits(Sum limit) const;
  /// The furthest end of a part that begins at `begin` and does not exceed `limit`.
  int FurthestEnd(int begin, Sum limit) const;
  /// The earliest begin of a part that ends at `end` and does not exceed `limit`.
  int EarliestBegin(int end, Sum limit) const;
  void FindWindows();
  void CheckMemory() const;

  const int items_;
  const int parts_;
  std::vector<Sum> prefix_;  ///< prefix_[i] = sum of the first i weights
  Sum limit_ = 0;            ///< the largest weight that a part may have
  std::vector<Window> windows_;
};

template <class Sum>
Weighted<Sum>::Weighted(const std::vector<UInt128>& weights, int parts)
    : items_(static_cast<int>(weights.size())), parts_(parts), prefix_(weights.size() + 1) {
  for (size_t i = 0; i < weights.size(); ++i) {
    prefix_[i + 1] = prefix_[i] + static_cast<Sum>(weights[i]);
  }
  limit_ = LeastLimit();
  FindWindows();
  CheckMemory();
}

template <class Sum>
int Weighted<Sum>::FurthestEnd(int begin, Sum limit) const {
  const Sum most = prefix_[begin] + limit;
  const auto beyond = std::upper_bound(prefix_.begin() + begin, prefix_.end(), most);
  return static_cast<int>(beyond - prefix_.begin()) - 1;
}

template <class Sum>
int Weighted<Sum>::EarliestBegin(int end, Sum limit) const {
  const Sum whole = prefix_[end];
  const Sum least = whole > limit ? whole - limit : 0;
  const auto first = std::lower_bound(prefix_.begin(), prefix_.begin() + end, least);
  return static_cast<int>(first - prefix_.begin());
}

template <class Sum>
bool Weighted<Sum>::Fits(Sum limit) const {
  int end = 0;
  for (int part = 0; part < parts_ && end < items_; ++part) end = FurthestEnd(end, limit);
  return end == items_;
}

template <class Sum>
Sum Weighted<Sum>::LeastLimit() const {
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
void Weighted<Sum>::FindWindows() {
  windows_.resize(static_cast<size_t>(parts_) + 1);
  windows_.front().last = 0;
  windows_.back().first = items_;
  for (int j = 1; j <= parts_; ++j) {
    const int furthest = FurthestEnd(windows_[j - 1].last, limit_);
    windows_[j].last = std::min(furthest, items_ - (parts_ - j));
  }
  for (int j = parts_ - 1; j >= 0; --j) {
    const int earliest = EarliestBegin(windows_[j + 1].first, limit_);
    windows_[j].first = std::max(earliest, j);
  }
}

template <class Sum>
void Weighted<Sum>::CheckMemory() const {
  size_t cells = 0;
  for (const Window& window : windows_) cells += window.size();
  if (cells <= kMaxCells) return;
  throw ConfigError(Str("balancing ", FormatCount(items_), " items over ", FormatCount(parts_),
                        " parts needs more than ", FormatBytes(4.0 * kMaxCells),
                        "; join items first"));
}

template <class Sum>
std::vector<int> Solve(const std::vector<UInt128>& weights, int parts) {
  const Weighted<Sum> problem(weights, parts);
  return CutTable(problem).Solve();
}

}  // namespace

std::vector<int> Balance(const std::vector<UInt128>& weights, int parts) {
  STRATA_CHECK(parts >= 1 && static_cast<size_t>(parts) <= weights.size()) << parts;
  UInt128 total = 0;
  for (UInt128 weight : weights) total += weight;
  if (total >> 63 == 0) return Solve<uint64_t>(weights, parts);
  return Solve<UInt128>(weights, parts);
}

}  // namespace strata::partition
