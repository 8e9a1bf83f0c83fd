// LeastSpread(): DeepSpeed's partition_balanced, for comparisons with it.
#pragma once

#include <vector>

namespace strata::partition {

/// Returns the bounds that deepspeed/runtime/utils.py (0.19) gives for items with these prefix sums
/// (prefix[i] = weight of the first i items). It is a dynamic programme over (items, parts) that
/// keeps for each pair only the cut with the least spread between its heaviest and its lightest
/// part, the last one among equals. The result need not have the least spread, since the best cut
/// may begin with a prefix that was not kept. REQUIRES: 1 <= parts < prefix.size().
std::vector<int> LeastSpread(const std::vector<double>& prefix, int parts);

}  // namespace strata::partition
