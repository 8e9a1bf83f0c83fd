#include "engine/tensors/threads.h"

#include <ATen/Parallel.h>

#include <mutex>

namespace strata {

void SetThreads(int count) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  at::set_num_threads(count);
}

}  // namespace strata
