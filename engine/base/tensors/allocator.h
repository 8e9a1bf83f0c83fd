// The CPU memory of tensors: a caching allocator behind c10::SetCPUAllocator.
//
// malloc gives large freed blocks back to the system, so every step faults their pages in again:
// 36,900 faults and half of the time of a 9216x4096 layer (libtorch notes, "malloc"). This
// allocator keeps freed memory: a small block for the next tensor of its size class, a large one in
// a LargeHeap for tensors of any size; of any thread. Its memory is on huge pages.
#pragma once

#include <cstdint>

namespace strata {

/// From now on this allocator gives memory to all CPU tensors of this process. Tensors made before
/// keep their memory. Further calls do nothing. Freed memory goes back to the system only when this
/// has none left. Errors: an operator that finds no memory throws WorldError.
void InstallAllocator();

/// Gives the free memory of large blocks back to the system. To be called after work that used much
/// memory and will not be repeated.
void ReleaseFreeMemory();

/// Bytes used by tensors. Each counts with its AllocatedBytes(), which are up to 64 KiB at most 1/8
/// more than its size.
/// Memory that oneDNN and MKL use inside an operator is not counted.
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
