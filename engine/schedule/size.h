// How large a program may be. Internal to engine/schedule.
#pragma once

#include <cstdint>

namespace strata::schedule {

/// Bounds the memory of a program, idle steps included: 2^23 forwards are some 300 MB, and three
/// times as much lowered.
inline constexpr int64_t kMaxForwards = int64_t{1} << 23;

/// Throws ConfigError where stages * (stages + micro_batches) is more than that.
void CheckSize(int64_t stages, int64_t micro_batches);

}  // namespace strata::schedule
