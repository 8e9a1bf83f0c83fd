// The exact solver behind Balanced(), on integers. partition.h defines the best cut and describes
// the method.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/cut/wide_int.h"

namespace strata::partition {

/// Returns the bounds of the best cut. Throws ConfigError if the tables would exceed 1 GiB.
/// REQUIRES: 1 <= parts <= weights.size(), and the sum of the weights < 2^127.
std::vector<int> Balance(const std::vector<UInt128>& weights, int parts);

}  // namespace strata::partition
