// Patience: how long a waiting thread polls before it sleeps. Torch-free.
#pragma once

#include <sched.h>

#include <chrono>

#include "engine/base/machine/cores.h"

namespace strata {

/// Waking a sleeping thread takes longer than a short action: tens of microseconds on an idle
/// virtual core. So a waiting rank first polls. The longest poll costs about as much as the wake-up
/// that it may save.
class Patience {
 public:
  /// Polls for 100 us if this machine has a core for each of its `ranks_here` ranks. Otherwise it
  /// does not poll, since the awaited rank may need this core.
  static Patience Of(int ranks_here) {
    const bool a_core_each = ranks_here <= MachineCores();
    return Patience(std::chrono::microseconds(a_core_each ? 100 : 0));
  }
  explicit Patience(std::chrono::nanoseconds time) : time_(time) {}

  /// Calls there() until it returns true or the time is over. Returns its last result. `core` is
  /// the core on which the awaited thread was last seen, -1 if unknown. If that is this thread's
  /// core, the awaited thread cannot run before this one sleeps, so there() is called only once.
  template <class There>
  bool Poll(int core, const There& there) const {
    if (there()) return true;
    if (time_.count() == 0 || core == ThisCore()) return false;
    const auto end = std::chrono::steady_clock::now() + time_;
    do {
      for (int i = 0; i < 8; ++i) __builtin_ia32_pause();
      if (there()) return true;
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

  /// The core that the calling thread runs on. The call takes nanoseconds.
  static int ThisCore() { return ::sched_getcpu(); }

 private:
  std::chrono::nanoseconds time_;
};

}  // namespace strata
