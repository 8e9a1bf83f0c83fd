// Unsigned integers wide enough for exact sums of weights, and for the squares of such sums.
#pragma once

#include <compare>
#include <cstdint>

namespace strata::partition {

using UInt128 = unsigned __int128;

/// An unsigned integer with just the operations that sums of squares need: addition and order.
/// Overflow wraps.
struct UInt256 {
  UInt128 high = 0;
  UInt128 low = 0;

  auto operator<=>(const UInt256&) const = default;
  friend UInt256 operator+(UInt256 a, UInt256 b) {
    const UInt128 low = a.low + b.low;
    const UInt128 carry = low < a.low ? 1 : 0;
    return {a.high + b.high + carry, low};
  }
};

/// x * x, exactly.
inline UInt128 Square(uint64_t x) { return UInt128{x} * x; }

/// x * x, exactly. REQUIRES: x < 2^127.
inline UInt256 Square(UInt128 x) {
  const UInt128 high = x >> 64, low = static_cast<uint64_t>(x);
  const UInt128 twice_middle = 2 * high * low;  // high < 2^63, so this does not overflow
  return UInt256{high * high, low * low} + UInt256{twice_middle >> 64, twice_middle << 64};
}

}  // namespace strata::partition
