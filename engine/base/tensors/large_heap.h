// Large blocks of memory, cut from mappings and joined again.
//
// A block is cut from the smallest free piece that holds it (best fit); the rest stays free, and a
// piece that is freed joins its free neighbours. So tensors of many sizes share the same memory. A
// free list per size would instead keep, for each size, the most memory that this size ever used:
// 60 MiB where 31 were in use (second rank of AlexNet). Pieces lie on huge pages, because small
// ones cost a page fault for every 4 KiB. Freed memory stays mapped, since the system clears each
// page that it hands out again.
//
// The heap has no lock, and does not know what a block is for: allocator.cc does both.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>

namespace strata {

class LargeHeap {
 public:
  /// Sizes and addresses of blocks are multiples of this many bytes.
  static constexpr size_t kUnit = 64;

  /// `most` is the number of bytes that may be mapped at once.
  explicit LargeHeap(size_t most) : most_(most) {}
  LargeHeap(const LargeHeap&) = delete;
  LargeHeap& operator=(const LargeHeap&) = delete;

  /// Returns a block of `size` bytes with undefined content. Returns null if the system has no
  /// memory, or if more than `most` bytes would be mapped. REQUIRES: size > 0 and size % kUnit ==
  /// 0.
  char* Take(size_t size);

  /// Takes back a block that Take(size) returned.
  void Return(char* block, size_t size);

  /// Makes sure that one free piece has at least `size` bytes, if the system and the limit allow
  /// it. Pages that were never used take no memory.
  void Reserve(size_t size) {
    if (!Holds(size)) Grow(size);
  }
  /// Takes a block of kUnit bytes in front of the last `size` bytes of a free piece, so that these
  /// stay a piece of their own whatever is mapped or freed before them. Null, and nothing happens,
  /// if no free piece is that large. REQUIRES: size > 0 and size % kUnit == 0.
  char* Fence(size_t size);
  /// True if one free piece has at least `size` bytes.
  bool Holds(size_t size) const { return sizes_.lower_bound({size, nullptr}) != sizes_.end(); }

  /// Gives all huge pages that no block uses back to the system.
  void Release();

  size_t mapped() const { return mapped_; }
  /// Bytes that were mapped since the beginning, also those that were given back.
  size_t ever_mapped() const { return ever_mapped_; }

 private:
  void Insert(char* begin, size_t size);
  void Erase(std::map<char*, size_t>::iterator piece);
  bool Grow(size_t size);
  bool Allows(size_t more) const { return mapped_ <= most_ && more <= most_ - mapped_; }

  const size_t most_;
  size_t mapped_ = 0;
  size_t ever_mapped_ = 0;
  /// The beginning of the lowest mapping; new mappings are put below it if possible.
  char* lowest_ = nullptr;
  std::map<char*, size_t> free_;              ///< size of each free piece, by address
  std::set<std::pair<size_t, char*>> sizes_;  ///< the same pieces, ordered by size
};

}  // namespace strata
