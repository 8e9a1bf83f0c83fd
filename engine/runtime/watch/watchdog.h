// Watchdog: detects that no rank makes progress, reports who waits for whom, and ends the waiting.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/transport.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

/// A rank of this process.
struct WatchedRank {
  std::shared_ptr<const Progress> progress;
  std::shared_ptr<Transport> transport;
};

/// The seconds without a completed action after which a rank counts as hanging. `asked`: the job's
/// hang_timeout. If that is 0: for an action of a row, five median steps, at least 10 s; two
/// minutes before the median is known and outside of rows (saving, loading, the first meeting).
double HangSeconds(double asked, bool in_row, std::optional<double> median_step);

/// Decides whether the ranks of this process hang. It has no clock of its own.
class HangDetector {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// `on_hang` is called once, with the report; `on_slow_data` once per occasion, with what is
  /// slow.
  struct Actions {
    std::function<void(const std::string& report)> on_hang;
    std::function<void(const std::string& report)> on_slow_data;
  };

  /// `hang_timeout`: seconds, as for HangSeconds().
  HangDetector(std::vector<WatchedRank> ranks, double hang_timeout, Actions actions);

  /// Call it regularly. It acts if a rank of this process is at work but none has completed an
  /// action for HangSeconds(). If any rank, here or in another process (Transport::Statuses), reads
  /// data or runs a function between steps, it reports that and goes on; otherwise it reports the
  /// positions of the ranks of this process as a hang. After half of that time it publishes what is
  /// slow here for the other processes. It waits at most two seconds for the statuses, because the
  /// rank that stores them may be the one that hangs.
  void Check(Time now);
  /// Forgets when the last action was completed. Call it if this process was stopped for a while.
  void Forget() { since_ = {}; }

 private:
  uint64_t Completed() const;
  bool AnyAtWork() const;
  double Limit() const;
  std::vector<std::string> SlowHere() const;
  void SetStatuses(const std::string& words) const;
  void Speak(double seconds);

  const std::vector<WatchedRank> ranks_;
  const double hang_timeout_;
  const Actions actions_;
  uint64_t seen_ = 0;  // completed actions at `since_`
  Time since_ = {};
  bool was_at_work_ = false;
  bool spoke_ = false;
  bool told_others_ = false;     // true if what is slow here was published
  bool told_slow_data_ = false;  // true if on_slow_data was called
};

/// A thread that checks regularly until it is destroyed. On a hang it writes the stacks of the
/// ranks of this process into their flight records and aborts their transports, so that waiting
/// calls throw WorldError(report); then it calls `on_hang`. Slow data is logged as a warning. If a
/// transport knows that a peer is gone, its waits end at once (Transport::AbortIfBroken).
class Watchdog {
 public:
  /// `hang_timeout`: seconds, as for HangSeconds().
  Watchdog(std::vector<WatchedRank> ranks, double hang_timeout,
           std::function<void(const std::string& report)> on_hang = {});
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Watch(std::chrono::duration<double> period);

  const std::vector<WatchedRank> ranks_;
  HangDetector detector_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace strata
