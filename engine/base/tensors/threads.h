// Which threads do the calling thread's work.
#pragma once

namespace strata {

/// For LibTorch's kernels: at::set_num_threads() under a lock. In a forked process LibTorch makes a
/// new pool of threads at the first call, without a lock. If two threads called it at once, one
/// would find no pool ("Invalid thread pool!").
void SetThreads(int count);

/// The calling thread's backwards run in itself. Otherwise autograd has one thread for each
/// accelerator: a backward that waits there for another rank, as the model axis does, would keep it
/// from the backward of a rank that shares the accelerator; and cuBLAS warns that it has no
/// context.
void RunBackwardHere();

}  // namespace strata
