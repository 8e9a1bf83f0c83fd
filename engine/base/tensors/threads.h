// Controls the threads that LibTorch uses for the calling thread's work.
#pragma once

namespace strata {

/// Sets the number of threads of LibTorch's kernels: at::set_num_threads() under a lock. In a
/// forked process LibTorch makes a new pool of threads at the first call, without a lock. If two
/// threads made that call at once, one would find no pool ("Invalid thread pool!").
void SetThreads(int count);

/// Makes the calling thread run its backward passes itself. Otherwise autograd runs them in one
/// thread per accelerator. A backward pass that waits there for another rank, as those of the model
/// axis do, would block the backward pass of a rank that shares the accelerator. Besides, cuBLAS
/// would warn that it has no context.
void RunBackwardHere();

}  // namespace strata
