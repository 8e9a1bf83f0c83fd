// Large blocks of memory, cut from mappings and joined again.
//
// A block is cut from the smallest free piece that holds it (best fit), its rest stays free, and a
// piece that comes free joins its neighbours. So tensors of many sizes share the same memory, where
// a list for each size would keep the most that each size ever had. Pieces lie on huge pages. Freed
// memory stays here, as a page that comes back from the system must be cleared first.
//
// Not here: locks, and what a block is for (allocator.cc).
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>

namespace strata {

class LargeHeap {
 public:
  /// Sizes and addresses of blocks are multiples of it.
  static constexpr size_t kUnit = 64;

  /// `most`: bytes that may be mapped at once.
  explicit LargeHeap(size_t most) : most_(most) {}
  LargeHeap(const LargeHeap&) = delete;
  LargeHeap& operator=(const LargeHeap&) = delete;

  /// Null where the system has no memory, or more than `most` would be mapped. What the memory
  /// holds is not said. REQUIRES: size > 0 and size % kUnit == 0.
  char* Take(size_t size);

  /// Takes back what Take(size) gave.
  void Return(char* block, size_t size);

  /// Gives all huge pages that no block lies on back to the system.
  void Release();

  size_t mapped() const { return mapped_; }

 private:
  void Insert(char* begin, size_t size);
  void Erase(std::map<char*, size_t>::iterator piece);
  bool Grow(size_t size);
  bool Allows(size_t more) const { return mapped_ <= most_ && more <= most_ - mapped_; }

  const size_t most_;
  size_t mapped_ = 0;
  char* lowest_ = nullptr;                    ///< of the last mapping; others are put below it
  std::map<char*, size_t> free_;              ///< pieces by address
  std::set<std::pair<size_t, char*>> sizes_;  ///< the same by size
};

}  // namespace strata
