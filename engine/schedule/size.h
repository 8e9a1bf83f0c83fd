// How large a program may be. Internal to engine/schedule.
#pragma once

#include <cstdint>

namespace strata::schedule {

/// Bounds the memory of a program, idle steps included: 2^24 forwards are some 600 MB, and three
/// times as much lowered. 1,024 ranks with 2 stages each and 4,096 micro-batches are within it.
inline constexpr int64_t kMaxForwards = int64_t{1} << 24;

/// Throws ConfigError where stages * (stages + micro_batches) is more than that.
void CheckSize(int64_t stages, int64_t micro_batches);

}  // namespace strata::schedule
