// The exact solver behind Balanced() (partition.h, which says what is the best cut and how it is
// found), on integers.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/cut/wide_int.h"

namespace strata::partition {

/// The bounds of the best cut. Throws ConfigError when the tables would exceed 1 GiB.
/// REQUIRES: 1 <= parts <= weights.size(), and the sum of the weights < 2^127.
std::vector<int> Balance(const std::vector<UInt128>& weights, int parts);

}  // namespace strata::partition
