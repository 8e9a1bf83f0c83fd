// How many threads LibTorch's kernels use for what the calling thread computes.
#pragma once

namespace strata {

/// at::set_num_threads(), one caller at a time. In a forked process LibTorch makes its pool of
/// threads anew at the first call, without a lock: of two callers at once one finds no pool
/// ("Invalid thread pool!").
void SetThreads(int count);

}  // namespace strata
