// Restarts: decides whether a job is started again after its ranks were lost.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "launcher/process/supervisor.h"

namespace strata::launcher {

class Restarts {
 public:
  /// At most `most` restarts within any `window` seconds.
  Restarts(int most, double window) : most_(most), window_(window) {}

  /// Call after each run of the job. `steps`: the number of steps of the training that are done.
  /// Returns true if the job is to be started again: after a failure that another run may not have
  /// (Outcome::may_pass), as long as restarts are left. If a run makes no further progress than the
  /// ones before, one more run is tried; then the job ends, because the same failure would happen
  /// again. If a machine is away (Outcome::is_early) after an earlier run, it is waited for; such a
  /// run does not count for progress.
  bool Again(const Outcome& outcome, int64_t steps, double now);

  /// The outcome of the last run, but with the first cause among runs that made no progress.
  const Outcome& outcome() const { return outcome_; }
  /// The number of the last restart, for the user: "restart 2 of 3".
  std::string Count() const;
  /// Seconds until the next run is started: 0, or 1, 2, 4, ... up to 60 while a machine is away.
  double Pause() const;

 private:
  const int most_;
  const double window_;
  std::deque<double> times_;      // times of the restarts within the window
  int64_t furthest_ = 0;          // the most steps that were done so far
  int fruitless_ = 0;             // restarts since furthest_ last grew
  int away_ = 0;                  // consecutive runs for which a machine was away
  std::optional<Outcome> first_;  // the outcome of the first run that reached furthest_
  Outcome outcome_;
};

/// Parses "90", "90s", "15m", "1h" or "2d" to seconds; none for other texts.
std::optional<double> ParseDuration(const std::string& text);

}  // namespace strata::launcher
