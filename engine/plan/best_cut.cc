#include "engine/plan/best_cut.h"

#include <algorithm>
#include <limits>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/plan/wide_int.h"

namespace strata::partition {
namespace {

constexpr double kMaxCalls = 1 << 28;
constexpr int64_t kNoCut = std::numeric_limits<int64_t>::max();

/// Dynamic programming over the suffixes: `rows[j][i]` is the best way to cut the items from i on
/// into the parts from j on.
class Solver {
 public:
  Solver(int items, int parts, const PartCost& cost) : items_(items), parts_(parts), cost_(cost) {}

  std::vector<int> Solve() {
    const int64_t limit = LeastHeaviest();
    return limit == kNoCut ? std::vector<int>() : LeastSquares(limit);
  }

 private:
  /// The places that the end of part j can take.
  int LastEnd(int j) const { return items_ - (parts_ - 1 - j); }

  /// Of all cuts the least cost of the heaviest part; kNoCut when there is none.
  int64_t LeastHeaviest() const {
    std::vector<int64_t> behind(static_cast<size_t>(items_) + 1, kNoCut);
    behind[static_cast<size_t>(items_)] = 0;
    for (int j = parts_ - 1; j >= 0; --j) {
      std::vector<int64_t> row(behind.size(), kNoCut);
      for (int begin = j; begin <= LastEnd(j) - 1; ++begin) {
        int64_t& best = row[static_cast<size_t>(begin)];
        for (int end = j + 1 == parts_ ? items_ : begin + 1; end <= LastEnd(j); ++end) {
          const std::optional<int64_t> cost = cost_(j, begin, end);
          if (!cost || *cost >= best) continue;
          best = std::min(best, std::max(*cost, behind[static_cast<size_t>(end)]));
        }
      }
      behind = std::move(row);
    }
    return behind[0];
  }

  std::vector<int> LeastSquares(int64_t limit) const {
    struct Choice {
      UInt128 squares = 0;
      int end = -1;  ///< -1: none
    };
    std::vector<std::vector<Choice>> rows(static_cast<size_t>(parts_) + 1,
                                          std::vector<Choice>(static_cast<size_t>(items_) + 1));
    rows.back().back().end = items_;
    for (int j = parts_ - 1; j >= 0; --j) {
      const std::vector<Choice>& behind = rows[static_cast<size_t>(j) + 1];
      for (int begin = j; begin <= LastEnd(j) - 1; ++begin) {
        Choice& best = rows[static_cast<size_t>(j)][static_cast<size_t>(begin)];
        for (int end = j + 1 == parts_ ? items_ : begin + 1; end <= LastEnd(j); ++end) {
          const std::optional<int64_t> cost = cost_(j, begin, end);
          if (!cost || *cost > limit) continue;
          const Choice& rest = behind[static_cast<size_t>(end)];
          if (rest.end < 0) continue;
          const UInt128 squares =
              static_cast<UInt128>(*cost) * static_cast<UInt128>(*cost) + rest.squares;
          if (best.end < 0 || squares <= best.squares) best = {squares, end};
        }
      }
    }
    std::vector<int> bounds = {0};
    for (int j = 0; j < parts_; ++j) {
      bounds.push_back(rows[static_cast<size_t>(j)][static_cast<size_t>(bounds.back())].end);
    }
    return bounds;
  }

  const int items_, parts_;
  const PartCost& cost_;
};

}  // namespace

std::vector<int> BestCut(int items, int parts, const PartCost& cost) {
  STRATA_CHECK(1 <= parts && parts <= items) << parts << " parts of " << items;
  if (static_cast<double>(parts) * items * items / 2 > kMaxCalls) {
    throw ConfigError(Str("cutting ", FormatCount(items), " layers into ", FormatCount(parts),
                          " stages within limits takes too long; join layers first"));
  }
  return Solver(items, parts, cost).Solve();
}

}  // namespace strata::partition
