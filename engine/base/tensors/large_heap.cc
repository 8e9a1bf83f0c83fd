// Free pieces are kept twice: by address (free_), to join neighbours, and by size (sizes_), to find
// the best fit. Take() cuts a block from the end of the smallest piece that is large enough. If
// there is none, Grow() maps more huge pages, if possible directly below the lowest mapping, so
// that a free piece there and the new pages become one piece. Return() joins the block with free
// neighbours on both sides. Take() and Return() cost O(log n) for n free pieces. Release() unmaps
// every huge page that lies completely in a free piece.
#include "engine/base/tensors/large_heap.h"

#include <sys/mman.h>

#include <cstdint>
#include <iterator>

#include "engine/base/check.h"

namespace strata {
namespace {

constexpr size_t kHuge = 2 << 20;  // size of a huge page

/// Rounds up to whole huge pages.
size_t Above(size_t size) { return (size + kHuge - 1) / kHuge * kHuge; }
/// Bytes from `begin` to the next huge page boundary.
size_t ToBorder(const char* begin) { return -reinterpret_cast<uintptr_t>(begin) % kHuge; }

/// Maps memory at `wish` if that is free, otherwise where the system chooses. Returns null if the
/// system has no memory.
char* MapAt(char* wish, size_t size) {
  void* mapping = mmap(wish, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapping == MAP_FAILED ? nullptr : static_cast<char*>(mapping);
}

/// Maps `size` bytes, aligned to huge pages, anywhere. It maps one page too many and unmaps both
/// ends.
char* MapHugePages(size_t size) {
  char* const begin = MapAt(nullptr, size + kHuge);
  if (!begin) return nullptr;
  const size_t front = ToBorder(begin);
  if (front > 0) munmap(begin, front);
  munmap(begin + front + size, kHuge - front);
  return begin + front;
}

}  // namespace

char* LargeHeap::Take(size_t size) {
  STRATA_CHECK(size > 0 && size % kUnit == 0) << size;
  auto found = sizes_.lower_bound({size, nullptr});
  if (found == sizes_.end()) {
    if (!Grow(size)) return nullptr;
    found = sizes_.lower_bound({size, nullptr});
  }
  const auto [whole, begin] = *found;
  Erase(free_.find(begin));
  if (whole > size) Insert(begin, whole - size);  // the heap grows at the front
  return begin + whole - size;
}

void LargeHeap::Return(char* block, size_t size) {
  const auto after = free_.lower_bound(block);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    const auto [begin, length] = *before;
    STRATA_CHECK(begin + length <= block) << "freed twice";
    if (begin + length == block) {
      Erase(before);
      block = begin, size += length;
    }
  }
  STRATA_CHECK(after == free_.end() || block + size <= after->first) << "freed twice";
  if (after != free_.end() && after->first == block + size) {
    size += after->second;
    Erase(after);
  }
  Insert(block, size);
}

char* LargeHeap::Fence(size_t size) {
  STRATA_CHECK(size > 0 && size % kUnit == 0) << size;
  const auto found = sizes_.lower_bound({size + kUnit, nullptr});
  if (found == sizes_.end()) return nullptr;
  const auto [whole, begin] = *found;
  Erase(free_.find(begin));
  const size_t before = whole - size - kUnit;
  if (before > 0) Insert(begin, before);
  Insert(begin + before + kUnit, size);
  return begin + before;
}

void LargeHeap::Release() {
  const std::map<char*, size_t> pieces = free_;
  for (const auto& [begin, size] : pieces) {
    const size_t front = ToBorder(begin);
    if (size < front + kHuge) continue;
    char* const page = begin + front;
    const size_t pages = (size - front) / kHuge * kHuge, rest = size - front - pages;
    Erase(free_.find(begin));
    if (front > 0) Insert(begin, front);
    if (rest > 0) Insert(page + pages, rest);
    munmap(page, pages);
    mapped_ -= pages;
    if (page == lowest_) lowest_ += pages;  // the next mapping joins what is left
  }
}

void LargeHeap::Insert(char* begin, size_t size) {
  free_.emplace(begin, size);
  sizes_.emplace(size, begin);
}

void LargeHeap::Erase(std::map<char*, size_t>::iterator piece) {
  sizes_.erase({piece->second, piece->first});
  free_.erase(piece);
}

/// Maps memory for a free piece of at least `size` bytes; call it if there is none. It first tries
/// directly below the lowest mapping, so that a free piece there becomes a part of the new one, and
/// otherwise takes any address. Returns false if the system has no memory, or the limit is reached.
bool LargeHeap::Grow(size_t size) {
  const auto lowest = free_.find(lowest_);
  size_t more = Above(lowest == free_.end() ? size : size - lowest->second);
  char* begin = lowest_ && Allows(more) ? MapAt(lowest_ - more, more) : nullptr;
  if (begin && begin + more != lowest_) {
    munmap(begin, more);
    begin = nullptr;
  }
  if (!begin) {
    more = Above(size);
    begin = Allows(more) ? MapHugePages(more) : nullptr;
  }
  if (!begin) return false;
  madvise(begin, more, MADV_HUGEPAGE);
  mapped_ += more;
  ever_mapped_ += more;
  lowest_ = begin;
  Return(begin, more);
  return true;
}

}  // namespace strata
