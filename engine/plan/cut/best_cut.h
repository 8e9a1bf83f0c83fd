// BestCut: cutting a list where what a part costs depends on which part it is, and where some parts
// may not hold everything (memory limits). partition.h has the fast way for sums of weights without
// limits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace strata::partition {

/// What part `part` costs when it holds the items from `begin` to `end` (at least one): at least 0,
/// or nothing when it may not. More items may cost less: they may end with one whose output is kept
/// anyway.
using PartCost = std::function<std::optional<int64_t>(int part, int begin, int end)>;

/// The best cut in Balanced()'s sense: of the cuts without an empty part the heaviest part is the
/// least possible; among those the sum of squares; among those the bounds are the latest, compared
/// from the first. Empty when no cut is allowed. Exact. Calls `cost` at most parts * items^2 / 2
/// times. Throws ConfigError where that would be more than 2^28. REQUIRES: 1 <= parts <= items;
/// costs below 2^53.
std::vector<int> BestCut(int items, int parts, const PartCost& cost);

}  // namespace strata::partition
