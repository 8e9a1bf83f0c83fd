// SetThreads(): the number of threads that LibTorch's kernels use for the calling thread's work.
#pragma once

namespace strata {

/// at::set_num_threads() under a lock. In a forked process LibTorch makes a new pool of threads at
/// the first call, without a lock. If two threads called it at once, one would find no pool
/// ("Invalid thread pool!").
void SetThreads(int count);

}  // namespace strata
