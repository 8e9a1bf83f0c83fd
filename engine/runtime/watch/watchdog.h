// Watchdog: notices that nothing happens any more, says who waits for whom, and ends the waiting.
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

/// After how many seconds without a completed action a rank hangs. `asked`: the job's hang_timeout.
/// If that is 0, an action of a row may take 10 s or five median steps; before some steps are
/// known, and beside rows (saving, loading, the first meeting), two minutes.
double HangSeconds(double asked, bool in_row, std::optional<double> median_step);

/// Decides about the ranks of this process, without a clock of its own.
class HangDetector {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// `on_hang`, called once, gets the report; `on_slow_data` what is slow, once per occasion.
  struct Actions {
    std::function<void(const std::string& report)> on_hang;
    std::function<void(const std::string& report)> on_slow_data;
  };

  /// `hang_timeout`: seconds, as HangSeconds() takes them.
  HangDetector(std::vector<WatchedRank> ranks, double hang_timeout, Actions actions);

  /// To be called now and then. Acts when one rank of this process is at work, but none completed
  /// an action for HangSeconds(). If any rank, here or elsewhere (Transport::Statuses), reads data
  /// or does something between its steps, it reports that, and goes on. Else it reports where each
  /// rank of this process is. After half that time it tells the others what is slow here. It waits
  /// at most two seconds for the statuses, since the rank that keeps them may be the one that
  /// hangs.
  void Check(Time now);
  /// Nobody looked for a while, since this process was stopped: what was seen before tells nothing.
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
  bool told_others_ = false;     // what is slow here
  bool told_slow_data_ = false;  // to on_slow_data
};

/// A thread that checks until it is destroyed. On a hang it notes the stacks of the ranks of this
/// process in their flight records, and aborts their transports, so that what waits throws
/// WorldError(report); then calls `on_hang`. Slow data is logged as a warning. Where a transport
/// knows of a peer that is gone, its waits end at once (Transport::AbortIfBroken).
class Watchdog {
 public:
  /// `hang_timeout`: seconds, as HangSeconds() takes them.
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
