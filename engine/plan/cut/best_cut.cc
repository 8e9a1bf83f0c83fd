#include "engine/plan/cut/best_cut.h"

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/plan/cut/bottleneck.h"
#include "engine/plan/cut/least_squares.h"
#include "engine/plan/cut/wide_int.h"

namespace strata::partition {
namespace {

constexpr double kMaxCalls = 1 << 28;

/// Cuts whose parts cost at most `limit`, as LeastSquares takes them.
class WithinLimit {
 public:
  using Cost = UInt128;
  static constexpr bool kIsMonge = false;

  WithinLimit(int items, int parts, const PartCost& cost, double limit)
      : cost_(cost), limit_(static_cast<int64_t>(limit)), windows_{{0, 0}} {
    for (int j = 1; j < parts; ++j) windows_.push_back({j, items - (parts - j)});
    windows_.push_back({items, items});
  }

  const std::vector<Window>& windows() const { return windows_; }
  std::optional<UInt128> Squared(int part, int begin, int end) const {
    const std::optional<int64_t> cost = cost_(part, begin, end);
    if (!cost || *cost > limit_) return std::nullopt;
    return Square(static_cast<uint64_t>(*cost));
  }

 private:
  const PartCost& cost_;
  const int64_t limit_;
  std::vector<Window> windows_;
};

}  // namespace

std::vector<int> BestCut(int items, int parts, const PartCost& cost) {
  STRATA_CHECK(1 <= parts && parts <= items) << parts << " parts of " << items;
  if (static_cast<double>(parts) * items * items / 2 > kMaxCalls) {
    throw ConfigError(Str("cutting ", FormatCount(items), " layers into ", FormatCount(parts),
                          " stages within limits takes too long; join layers first"));
  }
  const auto least = LeastBottleneck(
      items, parts,
      [&](int part, int begin, int end, double) {
        const std::optional<int64_t> own = cost(part, begin, end);
        return own ? static_cast<double>(*own) : kNever;
      },
      [](int, int) { return 0.0; });
  if (!least) return {};
  const WithinLimit problem(items, parts, cost, least->cost);
  return LeastSquares(problem).Solve();
}

}  // namespace strata::partition
