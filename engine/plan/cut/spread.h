// DeepSpeed's partition_balanced, for comparisons with it.
#pragma once

#include <vector>

namespace strata::partition {

/// The bounds that deepspeed/runtime/utils.py (0.19) gives for items with these prefix sums
/// (prefix[i] = weight of the first i items): a dynamic programme over (items, parts) that keeps
/// for each only the cut with the least spread between its heaviest and its lightest part, the last
/// one among equals. That is not the cut with the least spread: the best cut may begin with another
/// one. REQUIRES: 1 <= parts < prefix.size().
std::vector<int> LeastSpread(const std::vector<double>& prefix, int parts);

}  // namespace strata::partition
