// Blocks of up to kLargestClass bytes come from a free list per size class, each with a lock of its
// own, and are cut from arenas when the list is empty. Larger blocks come from a LargeHeap, behind
// one lock; arenas, which stay, come from another, so that they do not lie between large blocks. A
// freed block goes back to where it came from, so the heap keeps the memory for the next step.
// Allocating a small block is O(1), a large one O(log n) for n free pieces.
#include "engine/base/tensors/allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/machine/memory.h"
#include "engine/base/size_class.h"
#include "engine/base/tensors/dry_run.h"
#include "engine/base/tensors/large_heap.h"
#include "engine/base/text.h"

namespace strata {
namespace {

constexpr size_t kArena = 1 << 20;  // bytes of an arena, from which small blocks are cut

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

/// The header in front of the data of every block. The allocator needs it because oneDNN frees
/// memory by its address alone, without a size.
struct alignas(kBlockUnit) Header {
  size_t size;       // bytes of the data
  Account* account;  // the account that the block counts for while it is in use
  bool has_mapping;  // of its own: it was allocated in a dry run

  void* data() { return this + 1; }
  static Header* Of(void* data) { return static_cast<Header*>(data) - 1; }
};

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &Free, c10::kCPU};
    const int64_t size = AllocatedBytes(static_cast<int64_t>(bytes));
    Header* block = Take(static_cast<size_t>(size));
    block->account = account_of_thread;
    block->account->Add(size);
    used_.Add(size);
    return {block->data(), block->data(), &Free, c10::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Free; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    if (!DryRun::IsOn()) default_copy_data(to, from, bytes);
  }

 private:
  struct FreeList {
    std::mutex mutex;
    std::vector<Header*> blocks;
  };

  static CachingAllocator& instance();
  friend void strata::InstallAllocator();
  friend void strata::ReleaseFreeMemory(int64_t);
  friend std::shared_ptr<void> strata::ReserveMemory(int64_t);
  friend int64_t strata::MappedMemory();

  static void Free(void* data) {
    if (data) instance().Return(Header::Of(data));
  }

  Header* Take(size_t size) {
    if (size > kLargestClass) return DryRun::IsOn() ? Map(size) : TakeLarge(size);
    FreeList& list = free_[SizeClassOf(size)];
    {
      const std::lock_guard<std::mutex> lock(list.mutex);
      if (!list.blocks.empty()) {
        Header* block = list.blocks.back();
        list.blocks.pop_back();
        return block;
      }
    }
    return Cut(size);
  }

  void Return(Header* block) {
    const size_t size = block->size;
    block->account->Add(-static_cast<int64_t>(size));
    used_.Add(-static_cast<int64_t>(size));
    if (block->has_mapping) {
      munmap(block, sizeof(Header) + size);
      return;
    }
    if (size > kLargestClass) {
      const std::lock_guard<std::mutex> lock(large_mutex_);
      return large_.Return(reinterpret_cast<char*>(block), sizeof(Header) + size);
    }
    FreeList& list = free_[SizeClassOf(size)];
    const std::lock_guard<std::mutex> lock(list.mutex);
    list.blocks.push_back(block);
  }

  /// A block for a dry run. Only its header takes memory, one page of ordinary size.
  static Header* Map(size_t size) {
    void* const mapping = mmap(nullptr, sizeof(Header) + size, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
      throw WorldError(Str("out of addresses: no ", FormatBytes(static_cast<double>(size)),
                           " for a tensor without values"));
    }
    madvise(mapping, sizeof(Header) + size, MADV_NOHUGEPAGE);
    return new (mapping) Header{size, nullptr, true};
  }

  Header* TakeLarge(size_t size) {
    const std::lock_guard<std::mutex> lock(large_mutex_);
    return new (FromHeap(large_, sizeof(Header) + size)) Header{size, nullptr, false};
  }

  /// Cuts a piece from the current arena, with room for a header in front of it. The rest of an
  /// arena that is too small for the piece is lost.
  Header* Cut(size_t size) {
    const std::lock_guard<std::mutex> lock(large_mutex_);
    const size_t needed = sizeof(Header) + size;
    if (arena_left_ < needed) {
      arena_ = FromHeap(arenas_, kArena);
      arena_left_ = kArena;
    }
    char* block = arena_;
    arena_ += needed;
    arena_left_ -= needed;
    return new (block) Header{size, nullptr, false};
  }

  /// Takes memory from the heap. If there is none left, it releases the heap's free pages and tries
  /// once more, then throws WorldError. The caller holds large_mutex_.
  char* FromHeap(LargeHeap& heap, size_t size) {
    char* block = heap.Take(size);
    if (!block) {
      large_.Release();
      block = heap.Take(size);
    }
    if (!block) {
      throw WorldError(Str("out of memory: no ", FormatBytes(static_cast<double>(size)),
                           " for a tensor beside the ",
                           FormatBytes(static_cast<double>(used_.current)), " in use"));
    }
    return block;
  }

  void Release(size_t needed) {
    const std::lock_guard<std::mutex> lock(large_mutex_);
    if (needed == 0 || !large_.Holds(needed)) large_.Release();
  }

  std::shared_ptr<void> Reserve(size_t size) {
    if (size == 0) return nullptr;
    const std::lock_guard<std::mutex> lock(large_mutex_);
    large_.Reserve(size + LargeHeap::kUnit);
    return {large_.Fence(size), [this](char* fence) {
              if (fence == nullptr) return;
              const std::lock_guard<std::mutex> again(large_mutex_);
              large_.Return(fence, LargeHeap::kUnit);
            }};
  }

  size_t ever_mapped() {
    const std::lock_guard<std::mutex> lock(large_mutex_);
    return large_.ever_mapped();
  }

  std::array<FreeList, kSizeClasses> free_;
  Account used_;  // memory in use by all accounts
  std::mutex large_mutex_;
  // The limit is needed because Linux overcommits: mmap() would succeed for more memory than the
  // machine has, and the kernel would kill a process later.
  LargeHeap large_{static_cast<size_t>(ReadMachineMemory().most)};
  LargeHeap arenas_{static_cast<size_t>(ReadMachineMemory().most)};
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

void ReleaseFreeMemory(int64_t needed) {
  CachingAllocator::instance().Release(static_cast<size_t>(needed));
}

std::shared_ptr<void> ReserveMemory(int64_t bytes) {
  return CachingAllocator::instance().Reserve(static_cast<size_t>(bytes));
}

int64_t MappedMemory() { return static_cast<int64_t>(CachingAllocator::instance().ever_mapped()); }

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
