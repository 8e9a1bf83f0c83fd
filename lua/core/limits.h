// Limits: what a script may use up: memory, time, and the patience of whoever presses Ctrl-C.
// Knows nothing of Lua; core.cc asks it from the state's allocator and hook.
#pragma once

#include <semaphore.h>
#include <signal.h>

#include <atomic>
#include <cstddef>
#include <ctime>
#include <optional>
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

  /// Counts bytes outside Lua's heap, of an object that a script made, until GiveBack(). False, and
  /// nothing is counted, when they would exceed the limit.
  bool Take(size_t bytes);
  void GiveBack(size_t bytes) { memory_used_ -= bytes; }

  /// Raises the limit by these bytes, for the collection when the memory is full. 0 ends that.
  void Lend(size_t bytes) { lent_ = bytes; }

  /// Starts a call from outside: forgets an interrupt and starts the clock, which is the calling
  /// thread's time on a processor: a busy machine takes nothing from a script. 0 seconds = no
  /// limit.
  ///
  /// The script ends at the next look at Reason(). Inside one C function, such as LuaJIT's search
  /// for a pattern, nobody looks. A script that is still there a second after its time ends with
  /// its process: exit code 2, and the reason on standard error behind `place`, the line that runs.
  void Begin(double seconds, const std::string* place = nullptr);
  void End();
  /// No limit of time for the rest of this call: the script trains.
  void EndTimeLimit();

  /// For a signal handler or another thread. False when the call that runs was told before.
  bool Interrupt();
  bool interrupted() const { return interrupted_.load(std::memory_order_relaxed); }

  /// Why the script must stop now; "" while it may go on. Stays so until Begin(). REQUIRES, where
  /// there is a limit of time: the thread that called Begin().
  std::string Reason() const;
  /// True from a moment after the time is over: look at Reason() at once. Costs nothing.
  bool overdue() const { return overdue_.load(std::memory_order_relaxed); }
  /// For our own loops of unknown length: throws ConfigError(Reason()) where there is one.
  void Poll() const;

  /// Blocks until the next Interrupt() or Wake(): for a thread that ends what the hook cannot.
  void AwaitInterrupt();
  void Wake();

  size_t memory_used() const { return memory_used_; }
  size_t memory_limit() const { return memory_limit_; }

 private:
  void SetTimer();
  void EndWithProcess() const;
  static void OnSignal(int, siginfo_t* info, void*);

  const size_t memory_limit_;
  size_t memory_used_ = 0;
  size_t lent_ = 0;
  double seconds_ = 0;  ///< 0: no limit
  double begin_ = 0;    ///< of the thread's time
  const std::string* place_ = nullptr;
  std::string last_words_;
  std::optional<timer_t> timer_;  ///< for what does not look at Reason()
  std::atomic<bool> overdue_ = false;
  std::atomic<bool> running_ = false;
  std::atomic<bool> interrupted_ = false;
  sem_t wake_;  // POSIX's may be raised in a signal handler
};

}  // namespace strata::lua
