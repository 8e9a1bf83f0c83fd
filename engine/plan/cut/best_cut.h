// BestCut: cuts a list when the cost of a part depends on which part it is, and some parts may not
// hold all items (memory limits). For sums of weights without limits, partition.h has a faster way.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace strata::partition {

/// The cost of part `part` if it holds the items from `begin` up to `end` (at least one): a number
/// of at least 0, or nothing if it may not hold them. More items may cost less, since they may end
/// with an item whose output is kept anyway.
using PartCost = std::function<std::optional<int64_t>(int part, int begin, int end)>;

/// Finds the best cut in Balanced()'s sense: of the cuts without an empty part those whose heaviest
/// part is the least possible; of these those with the least sum of squares; of these the one whose
/// bounds are the latest, compared from the first. Returns {} if no cut is allowed. The result is
/// exact. Solves two tables by dynamic programming (cut_table.h): the first finds the heaviest
/// part, the second the cut within it. Each calls `cost` at most parts * items^2 / 2 times. Throws
/// ConfigError if that would be more than 2^28. REQUIRES: 1 <= parts <= items; costs below 2^53.
std::vector<int> BestCut(int items, int parts, const PartCost& cost);

}  // namespace strata::partition
