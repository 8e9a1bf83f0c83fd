// The CPU memory of tensors: a caching allocator behind c10::SetCPUAllocator.
//
// malloc gives large freed blocks back to the system, so that every step faults its pages in again
// (36,900 faults and half the time of a 9216x4096 layer; libtorch notes, "malloc"). Here a freed
// block waits for the next tensor of its size class, in any thread, and lies on huge pages.
#pragma once

#include <cstdint>

namespace strata {

/// From now on all CPU tensors of this process get their memory here. Further calls do nothing.
/// Tensors made before keep theirs. Freed blocks go back to the system only when the process holds
/// much more than it ever used at once (see memory.cc), or when the system has no more.
/// Errors: an operator that finds no memory throws WorldError.
void InstallAllocator();

/// Gives the large blocks that are free back to the system: after something that will not come
/// again.
void ReleaseFreeMemory();

/// Bytes of tensors, by the size classes that hold them (at most 1/8 above what was asked for).
/// Scratch memory inside oneDNN and MKL is not counted.
struct MemoryUse {
  int64_t current = 0;
  int64_t peak = 0;
};

inline constexpr int kMemoryAccounts = 1024;

/// What this thread allocates from now on counts for `account` until it is freed, in whatever
/// thread. Ranks that are threads of one process use their ranks; every thread starts with 0.
/// REQUIRES: 0 <= account < kMemoryAccounts.
void SetMemoryAccount(int account);
MemoryUse MemoryOf(int account);
/// Makes the peak the current use.
void ResetPeakMemory(int account);

}  // namespace strata
