// The largest size of a program. Private to engine/schedule.
#pragma once

#include <cstdint>

namespace strata::schedule {

/// Limits the memory of a program, idle steps included: with 2^24 forwards it takes some 600 MB,
/// and three times as much when it is lowered. 1,024 ranks with 2 stages each and 4,096
/// micro-batches are within the limit.
inline constexpr int64_t kMaxForwards = int64_t{1} << 24;

/// Throws ConfigError if stages * (stages + micro_batches) is larger than kMaxForwards.
void CheckSize(int64_t stages, int64_t micro_batches);

}  // namespace strata::schedule
