// The amount of memory that a tensor takes on the CPU with the engine's allocator
// (engine/base/tensors/allocator.h). It is here, without torch, so that predictions count the same
// bytes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace strata {

/// The alignment of every block in bytes: a cache line, or an AVX-512 register.
inline constexpr size_t kBlockUnit = 64;
/// Blocks up to this many bytes have size classes; larger ones are rounded up to whole units.
inline constexpr size_t kLargestClass = 64 << 10;
/// The classes are 1 to 8 units, then eight classes per power of two, so at most 1/8 of a larger
/// block is wasted.
inline constexpr size_t kSizeClasses = 64;

/// The index of the smallest class that holds `bytes`. REQUIRES: bytes <= kLargestClass.
inline size_t SizeClassOf(size_t bytes) {
  const size_t last = std::max<size_t>(bytes, 1) - 1;
  const size_t unit = last / kBlockUnit;  // index of the last unit used
  if (unit < 8) return unit;
  const auto octave = static_cast<size_t>(std::bit_width(unit)) - 4;
  return 8 * octave + (unit >> octave);
}

/// Bytes of a block of this class.
inline size_t SizeOfClass(size_t index) {
  if (index < 16) return (index + 1) * kBlockUnit;
  const size_t octave = index / 8 - 1;
  return ((index % 8 + 9) << octave) * kBlockUnit;
}

/// The bytes that the allocator gives to a tensor of `bytes`; 0 for an empty tensor.
inline int64_t AllocatedBytes(int64_t bytes) {
  if (bytes <= 0) return 0;
  const auto size = static_cast<size_t>(bytes);
  return static_cast<int64_t>(size <= kLargestClass
                                  ? SizeOfClass(SizeClassOf(size))
                                  : (size + kBlockUnit - 1) / kBlockUnit * kBlockUnit);
}

}  // namespace strata
