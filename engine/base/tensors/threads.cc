#include "engine/base/tensors/threads.h"

#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>

#include <mutex>

namespace strata {

void SetThreads(int count) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  at::set_num_threads(count);
}

void RunBackwardHere() { c10::AutogradState::get_tls_state().set_multithreading_enabled(false); }

}  // namespace strata
