// Watchdog: notices that nothing happens any more, says who waits for whom, and ends the waiting.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
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

/// Decides about the ranks of this process, without a clock of its own.
class HangDetector {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// `on_hang`, called once, gets the report; `on_slow_data` what is slow, once per occasion.
  struct Actions {
    std::function<void(const std::string& report)> on_hang;
    std::function<void(const std::string& report)> on_slow_data;
  };

  HangDetector(std::vector<WatchedRank> ranks, std::chrono::duration<double> hang_timeout,
               Actions actions);

  /// To be called now and then. Acts when one rank of this process is at work, but none completed
  /// an action for `hang_timeout`. If any rank, here or elsewhere (Transport::Statuses), reads
  /// data, it reports that, and goes on. Else it reports where each rank of this process is. It
  /// waits at most two seconds for the statuses, since the rank that keeps them may be the one that
  /// hangs.
  void Check(Time now);

 private:
  uint64_t Completed() const;
  bool AnyAtWork() const;
  void TakeWordsBack() const;
  std::vector<std::string> SlowData() const;
  void Speak();

  const std::vector<WatchedRank> ranks_;
  const std::chrono::duration<double> hang_timeout_;
  const Actions actions_;
  uint64_t seen_ = 0;  // completed actions at `since_`
  Time since_ = {};
  bool spoke_ = false;
  bool told_slow_data_ = false;
};

/// A thread that checks until it is destroyed. On a hang it aborts the transports of all ranks of
/// this process, so that what waits throws WorldError(report); then calls `on_hang`. Slow data is
/// logged as a warning.
class Watchdog {
 public:
  Watchdog(std::vector<WatchedRank> ranks, std::chrono::duration<double> hang_timeout,
           std::function<void(const std::string& report)> on_hang = {});
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Watch(std::chrono::duration<double> period);

  HangDetector detector_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace strata
