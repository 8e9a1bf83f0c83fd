// The CPU memory of tensors: a caching allocator behind c10::SetCPUAllocator.
//
// malloc gives large freed blocks back to the system, so every step faults their pages in again:
// 36,900 faults and half of the time of a 9216x4096 layer (libtorch notes, "malloc"). This
// allocator keeps freed memory instead. A freed small block is reused for the next tensor of its
// size class; a large block goes to a LargeHeap, which serves tensors of any size. A block may be
// freed by another thread than the one that allocated it. All memory is on huge pages.
#pragma once

#include <cstdint>
#include <memory>

namespace strata {

/// From now on this allocator serves all CPU tensors of this process. Tensors made earlier keep
/// their memory. Further calls do nothing. Freed memory goes back to the system only when the
/// allocator finds none left. Errors: an operator that finds no memory throws WorldError.
void InstallAllocator();

/// Gives the free memory of large blocks back to the system. Call it after work that used much
/// memory and will not be repeated. With `needed`, it does nothing if one free piece has so many
/// bytes: a large tensor that is made next takes it, and the system need not clear new pages.
void ReleaseFreeMemory(int64_t needed = 0);

/// Keeps one free piece of so many bytes, if there is memory. Large tensors that are made next lie
/// in it side by side, and leave one piece when all are freed. While the result lives, other
/// tensors do not take a part of the piece's front together with memory before it.
std::shared_ptr<void> ReserveMemory(int64_t bytes);

/// Bytes of large blocks that were asked from the system since the process began, also those that
/// were given back. The system clears each page of them before its first use.
int64_t MappedMemory();

/// Bytes used by tensors. Each tensor counts with its AllocatedBytes(): its size, rounded up by
/// less than 64 bytes or by at most 1/8. Memory that oneDNN and MKL use inside an operator is not
/// counted.
struct MemoryUse {
  int64_t current = 0;
  int64_t peak = 0;
};

inline constexpr int kMemoryAccounts = 1024;

/// Memory that this thread allocates from now on counts for `account` until it is freed, by any
/// thread. Ranks that are threads of one process use their rank as account. Every thread starts
/// with account 0. REQUIRES: 0 <= account < kMemoryAccounts.
void SetMemoryAccount(int account);
MemoryUse MemoryOf(int account);
/// Sets the account's peak to its current use.
void ResetPeakMemory(int account);

}  // namespace strata
