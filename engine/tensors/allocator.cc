#include "engine/tensors/allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/size_class.h"
#include "engine/base/text.h"
#include "engine/tensors/machine_memory.h"

namespace strata {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHuge = 2 << 20;     // a huge page
constexpr size_t kLarge = 1 << 20;    // a block of this size or more is a mapping of its own
constexpr size_t kArena = 8 << 20;    // smaller blocks are cut from mappings of this size
constexpr size_t kSlack = 256 << 20;  // free blocks go back above 1.5 x the peak use plus this

struct alignas(kBlockUnit) Account {
  std::atomic<int64_t> current = 0;
  std::atomic<int64_t> peak = 0;

  void Add(int64_t bytes) {
    const int64_t now = current.fetch_add(bytes) + bytes;
    int64_t highest = peak.load();
    while (now > highest && !peak.compare_exchange_weak(highest, now)) {
    }
  }
};

std::array<Account, kMemoryAccounts> accounts;
thread_local Account* account_of_thread = &accounts[0];

/// Lies in front of the data of every block. It is needed since oneDNN frees memory by its address
/// alone.
struct alignas(kBlockUnit) Header {
  size_t size_class;
  Account* account;  // the block counts for it while it is in use

  size_t size() const { return SizeOfClass(size_class); }
  void* data() { return this + 1; }
  static Header* Of(void* data) { return static_cast<Header*>(data) - 1; }
};

/// Maps `size` bytes that start at the border of a huge page, with a small page in front of them
/// for the header. Null when the system has no memory.
char* Map(size_t size) {
  void* mapping = mmap(nullptr, kPage + size + kHuge, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto* begin = static_cast<char*>(mapping);
  const size_t before = (kHuge - (reinterpret_cast<uintptr_t>(begin) + kPage) % kHuge) % kHuge;
  if (before > 0) munmap(begin, before);
  char* data = begin + before + kPage;
  munmap(data + size, kHuge - before);
  madvise(data, size, MADV_HUGEPAGE);
  return data;
}

void Unmap(void* data, size_t size) { munmap(static_cast<char*>(data) - kPage, kPage + size); }

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &Free, c10::kCPU};
    Header* block = Take(SizeClassOf(bytes));
    block->account = account_of_thread;
    const auto size = static_cast<int64_t>(block->size());
    block->account->Add(size);
    used_.Add(size);
    return {block->data(), block->data(), &Free, c10::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Free; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  struct FreeList {
    std::mutex mutex;
    std::vector<Header*> blocks;
  };

  static CachingAllocator& instance();
  friend void strata::InstallAllocator();
  friend void strata::ReleaseFreeMemory();

  static void Free(void* data) {
    if (data) instance().Return(Header::Of(data));
  }

  Header* Take(size_t size_class) {
    {
      FreeList& list = free_[size_class];
      const std::lock_guard<std::mutex> lock(list.mutex);
      if (!list.blocks.empty()) {
        Header* block = list.blocks.back();
        list.blocks.pop_back();
        return block;
      }
    }
    const size_t size = SizeOfClass(size_class);
    void* data = size >= kLarge ? MapLarge(size) : Cut(size);
    return new (Header::Of(data)) Header{size_class, nullptr};
  }

  void Return(Header* block) {
    const auto size = static_cast<int64_t>(block->size());
    block->account->Add(-size);
    used_.Add(-size);
    FreeList& list = free_[block->size_class];
    const std::lock_guard<std::mutex> lock(list.mutex);
    list.blocks.push_back(block);
  }

  /// Cuts a piece from the current arena, with room for a header in front of it. The rest of an
  /// arena that is too small for the piece is lost.
  void* Cut(size_t size) {
    const std::lock_guard<std::mutex> lock(arena_mutex_);
    if (arena_left_ < sizeof(Header) + size) {
      arena_ = MapOrThrow(kArena);
      arena_left_ = kArena;
    }
    char* data = arena_ + sizeof(Header);
    arena_ = data + size;
    arena_left_ -= sizeof(Header) + size;
    return data;
  }

  void* MapLarge(size_t size) {
    const int64_t limit = used_.peak + used_.peak / 2 + static_cast<int64_t>(kSlack);
    if (static_cast<int64_t>(size) > limit - mapped_) Release();
    char* data = MapOrThrow(size);
    mapped_ += static_cast<int64_t>(size);
    return data;
  }

  /// Null beyond what the machine has: the system would promise more, and kill somebody later.
  char* MapWithin(size_t size) const {
    static const int64_t most = ReadMachineMemory().most;
    const int64_t left = std::max<int64_t>(most - mapped_, 0);
    return size <= static_cast<size_t>(left) ? Map(size) : nullptr;
  }

  char* MapOrThrow(size_t size) {
    char* data = MapWithin(size);
    if (!data) {
      Release();
      data = MapWithin(size);
    }
    if (!data) {
      throw WorldError(Str("out of memory: no ", FormatBytes(static_cast<double>(size)),
                           " for a tensor beside the ",
                           FormatBytes(static_cast<double>(used_.current)), " in use"));
    }
    return data;
  }

  /// Gives the free large blocks back to the system.
  void Release() {
    for (size_t i = SizeClassOf(kLarge); i < kSizeClasses; ++i) {
      std::vector<Header*> blocks;
      {
        const std::lock_guard<std::mutex> lock(free_[i].mutex);
        blocks.swap(free_[i].blocks);
      }
      for (Header* block : blocks) {
        const size_t size = block->size();
        mapped_ -= static_cast<int64_t>(size);
        Unmap(block->data(), size);
      }
    }
  }

  std::array<FreeList, kSizeClasses> free_;
  Account used_;                     // the use of the whole process
  std::atomic<int64_t> mapped_ = 0;  // bytes of large blocks, used and free
  std::mutex arena_mutex_;
  char* arena_ = nullptr;
  size_t arena_left_ = 0;
};

/// The allocator is never destroyed, since tensors may outlive every static object.
CachingAllocator& CachingAllocator::instance() {
  static auto* allocator = new CachingAllocator;
  return *allocator;
}

Account& AccountAt(int account) {
  STRATA_CHECK(account >= 0 && account < kMemoryAccounts) << "memory account " << account;
  return accounts[static_cast<size_t>(account)];
}

}  // namespace

void InstallAllocator() {
  constexpr uint8_t kAboveTheDefault = 1;
  c10::SetCPUAllocator(&CachingAllocator::instance(), kAboveTheDefault);
}

void ReleaseFreeMemory() { CachingAllocator::instance().Release(); }

void SetMemoryAccount(int account) { account_of_thread = &AccountAt(account); }

MemoryUse MemoryOf(int account) {
  const Account& of = AccountAt(account);
  return {of.current, of.peak};
}

void ResetPeakMemory(int account) {
  Account& of = AccountAt(account);
  of.peak = of.current.load();
}

}  // namespace strata
