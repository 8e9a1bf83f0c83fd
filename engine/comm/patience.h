// Patience: how long a rank that waits looks again before it sleeps. Torch-free.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace strata {

/// A thread that sleeps costs more to wake than an empty action takes: tens of microseconds where
/// the idle core is a virtual one. So a waiting rank looks again for some time, which is bounded by
/// about what it saves.
class Patience {
 public:
  /// None where ranks share cores: the one that this one waits for may need its core.
  static Patience Of(int ranks_here) {
    const bool a_core_each = ranks_here <= static_cast<int>(std::thread::hardware_concurrency());
    return Patience(std::chrono::microseconds(a_core_each ? 100 : 0));
  }
  explicit Patience(std::chrono::nanoseconds time) : time_(time) {}

  /// Calls `there()` until it is true or the time is over; gives what it said last. `core`: where
  /// the awaited one was seen last, -1 when nobody knows. If that is this core, which the system
  /// has given to both, it cannot go on before this thread sleeps: `there()` is called once.
  template <class There>
  bool LookAgain(int core, const There& there) const {
    if (there()) return true;
    if (time_.count() == 0 || core == ThisCore()) return false;
    const auto end = std::chrono::steady_clock::now() + time_;
    do {
      for (int i = 0; i < 8; ++i) __builtin_ia32_pause();
      if (there()) return true;
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

  /// Costs some nanoseconds.
  static int ThisCore() { return ::sched_getcpu(); }

 private:
  std::chrono::nanoseconds time_;
};

}  // namespace strata
