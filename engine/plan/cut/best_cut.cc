#include "engine/plan/cut/best_cut.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/plan/cut/cut_table.h"
#include "engine/plan/cut/wide_int.h"

namespace strata::partition {
namespace {

constexpr double kMaxCalls = 1 << 28;

/// The problem for CutTable that finds the least possible heaviest part of all cuts.
class Heaviest {
 public:
  using Cost = int64_t;
  static constexpr bool kIsMonge = false;

  Heaviest(int items, int parts, const PartCost& cost)
      : cost_(cost), windows_(AllWindows(items, parts)) {}

  const std::vector<Window>& windows() const { return windows_; }
  static Cost Join(Cost part, Cost rest) { return std::max(part, rest); }
  std::optional<Cost> Of(int part, int begin, int end) const { return cost_(part, begin, end); }

 private:
  const PartCost& cost_;
  const std::vector<Window> windows_;
};

/// The problem for CutTable that finds the least sum of squares of the cuts whose parts all cost at
/// most `limit`.
class WithinLimit {
 public:
  using Cost = UInt128;
  static constexpr bool kIsMonge = false;

  WithinLimit(const Heaviest& all, int64_t limit) : all_(all), limit_(limit) {}

  const std::vector<Window>& windows() const { return all_.windows(); }
  static Cost Join(Cost part, Cost rest) { return part + rest; }
  std::optional<Cost> Of(int part, int begin, int end) const {
    const std::optional<int64_t> cost = all_.Of(part, begin, end);
    if (!cost || *cost > limit_) return std::nullopt;
    return Square(static_cast<uint64_t>(*cost));
  }

 private:
  const Heaviest& all_;
  const int64_t limit_;
};

}  // namespace

std::vector<int> BestCut(int items, int parts, const PartCost& cost) {
  STRATA_CHECK(1 <= parts && parts <= items) << parts << " parts of " << items;
  if (static_cast<double>(parts) * items * items / 2 > kMaxCalls) {
    throw ConfigError(Str("cutting ", FormatCount(items), " layers into ", FormatCount(parts),
                          " stages within limits takes too long; join layers first"));
  }
  const Heaviest all(items, parts, cost);
  CutTable table(all);
  if (table.Solve().empty()) return {};
  const WithinLimit problem(all, table.cost());
  return CutTable(problem).Solve();
}

}  // namespace strata::partition
