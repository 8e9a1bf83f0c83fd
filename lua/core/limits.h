// Limits: what a script may use up: memory, time, and the patience of whoever presses Ctrl-C.
// Knows nothing of Lua; core.cc asks it from the state's allocator and hook.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <cstddef>
#include <string>

namespace strata::lua {

class Limits {
 public:
  explicit Limits(size_t memory_limit);
  ~Limits();
  Limits(const Limits&) = delete;
  Limits& operator=(const Limits&) = delete;

  /// realloc() and free() (new_size 0) with accounting; null beyond the limit.
  void* Reallocate(void* block, size_t old_size, size_t new_size);

  /// Counts bytes that are not Lua's, of an object that a script made; false and nothing beyond the
  /// limit. To be taken back when the object ends.
  bool Take(size_t bytes);
  void GiveBack(size_t bytes) { memory_used_ -= bytes; }

  /// Bytes beyond the limit, for what must be done when the memory is full. 0 takes them back.
  void Lend(size_t bytes) { lent_ = bytes; }

  /// Starts a call from outside: forgets an interrupt and starts the clock, which is the calling
  /// thread's time on a processor: a busy machine takes nothing from a script. 0 seconds = no
  /// limit.
  void Begin(double seconds);
  /// No limit of time for the rest of this call: the script trains.
  void EndTimeLimit() { seconds_ = 0; }

  /// For a signal handler or another thread.
  void Interrupt();
  bool interrupted() const { return interrupted_.load(std::memory_order_relaxed); }

  /// Why the script must stop now; "" while it may go on. Stays so until Begin(). REQUIRES, where
  /// there is a limit of time: the thread that called Begin().
  std::string Reason() const;
  /// For our own loops of unknown length: throws ConfigError(Reason()) where there is one.
  void Poll() const;

  /// Blocks until the next Interrupt() or Wake(): for a thread that ends what the hook cannot.
  void AwaitInterrupt();
  void Wake();

  size_t memory_used() const { return memory_used_; }
  size_t memory_limit() const { return memory_limit_; }

 private:
  const size_t memory_limit_;
  size_t memory_used_ = 0;
  size_t lent_ = 0;
  double seconds_ = 0;  ///< 0: no limit
  double begin_ = 0;    ///< of the thread's time
  std::atomic<bool> interrupted_ = false;
  sem_t wake_;  // POSIX's may be raised in a signal handler
};

}  // namespace strata::lua
