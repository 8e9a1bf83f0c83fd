// Limits: the limits of a script's memory and time, and its interruption by Ctrl-C. This class does
// not use Lua; the allocator and hook of core.cc call it.
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

  /// realloc(), or free() if new_size is 0, with accounting; returns null if the limit would be
  /// exceeded.
  void* Reallocate(void* block, size_t old_size, size_t new_size);

  /// Counts the bytes, outside Lua's heap, of an object made by a script, until GiveBack(). Returns
  /// false and counts nothing if they would exceed the limit.
  bool Take(size_t bytes);
  void GiveBack(size_t bytes) { memory_used_ -= bytes; }

  /// Raises the limit by these bytes, so that garbage can be collected when memory is full. Lend(0)
  /// ends that.
  void Lend(size_t bytes) { lent_ = bytes; }

  /// Starts a call from outside: clears an interrupt and starts the clock. The clock counts the
  /// calling thread's processor time, so other programs do not use up the script's time. 0 seconds
  /// = no limit.
  ///
  /// The script stops when the hook next calls Reason(). Within one C function, such as LuaJIT's
  /// search for a pattern, the hook does not run. So if the script still runs a second after its
  /// time is up, the process ends: exit code 2, and a message on standard error that begins with
  /// `place`, the line that runs.
  void Begin(double seconds, const std::string* place = nullptr);
  void End();
  /// Removes the limit of time for the rest of this call, because the script trains.
  void EndTimeLimit();
  /// Stops the clock, or lets it run again, and returns whether it ran. Use a ClockSwitch.
  bool RunClock(bool runs);

  /// Interrupts the script; may be called in a signal handler or on another thread. Returns false
  /// if the running call was already interrupted.
  bool Interrupt();
  bool interrupted() const { return interrupted_.load(std::memory_order_relaxed); }

  /// The reason why the script must stop now; "" while it may go on. An
  /// interrupt stays until Begin(), the end of the time until Begin() or EndTimeLimit(). REQUIRES,
  /// if there is a limit of time: the calling thread is the one that called Begin().
  std::string Reason() const;
  /// True from shortly after the time is up; then call Reason() at once. Costs one read of an
  /// atomic.
  bool overdue() const { return overdue_.load(std::memory_order_relaxed); }
  /// For our own loops of unknown length: throws ConfigError(Reason()) if the script must stop.
  void Poll() const;

  /// Blocks until the next Interrupt() or Wake(). For a thread that stops work which the hook
  /// cannot interrupt.
  void AwaitInterrupt();
  void Wake();

  size_t memory_used() const { return memory_used_; }
  size_t memory_limit() const { return memory_limit_; }

 private:
  /// The seconds that the script has taken.
  double TakenSeconds() const;
  void SetTimer();
  void ArmTimer(double seconds);
  void EndWithProcess() const;
  static void OnSignal(int, siginfo_t* info, void*);

  const size_t memory_limit_;
  size_t memory_used_ = 0;
  size_t lent_ = 0;
  double seconds_ = 0;  ///< 0 = no limit
  bool clock_runs_ = true;
  double taken_ = 0;  ///< seconds until the clock was last stopped
  double begin_ = 0;  ///< the thread's processor time when the clock was last started
  const std::string* place_ = nullptr;
  std::string last_words_;
  std::optional<timer_t> timer_;  ///< ends code that does not call Reason()
  std::atomic<bool> overdue_ = false;
  std::atomic<bool> running_ = false;
  std::atomic<bool> interrupted_ = false;
  sem_t wake_;  // a POSIX semaphore may be posted in a signal handler
};

/// While an object lives, the clock of the time limit is stopped, or runs again. Reading data is no
/// fault of the script, so the clock is stopped meanwhile; a function of the script that is called
/// for a sample is on the clock again.
class ClockSwitch {
 public:
  ClockSwitch(Limits& limits, bool runs) : limits_(limits), ran_(limits.RunClock(runs)) {}
  ~ClockSwitch() { limits_.RunClock(ran_); }
  ClockSwitch(const ClockSwitch&) = delete;
  ClockSwitch& operator=(const ClockSwitch&) = delete;

 private:
  Limits& limits_;
  const bool ran_;
};

}  // namespace strata::lua
