// How much memory a tensor takes on the CPU, as the engine's allocator gives it
// (engine/base/tensors/allocator.h), so that predictions count the same.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace strata {

/// Alignment of every block: a cache line, an AVX-512 register.
inline constexpr size_t kBlockUnit = 64;
/// Up to this size there are size classes; more is taken in units.
inline constexpr size_t kLargestClass = 64 << 10;
/// 1 to 8 units, then eight classes for each power of two, so at most 1/8 is wasted.
inline constexpr size_t kSizeClasses = 64;

/// REQUIRES: bytes <= kLargestClass.
inline size_t SizeClassOf(size_t bytes) {
  const size_t last = std::max<size_t>(bytes, 1) - 1;
  const size_t unit = last / kBlockUnit;  // the last unit that is used
  if (unit < 8) return unit;
  const auto octave = static_cast<size_t>(std::bit_width(unit)) - 4;
  return 8 * octave + (unit >> octave);
}

inline size_t SizeOfClass(size_t index) {
  if (index < 16) return (index + 1) * kBlockUnit;
  const size_t octave = index / 8 - 1;
  return ((index % 8 + 9) << octave) * kBlockUnit;
}

/// What a tensor of so many bytes takes; nothing for an empty one.
inline int64_t AllocatedBytes(int64_t bytes) {
  if (bytes <= 0) return 0;
  const auto size = static_cast<size_t>(bytes);
  return static_cast<int64_t>(size <= kLargestClass
                                  ? SizeOfClass(SizeClassOf(size))
                                  : (size + kBlockUnit - 1) / kBlockUnit * kBlockUnit);
}

}  // namespace strata
