// Restarts: whether a job whose ranks were lost begins again.
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

  /// After a run of the job, in which `steps` steps of the training were done: true when it is to
  /// begin again. So it is after a failure that another run may not have (Outcome::may_pass), as
  /// long as restarts are left. A run that does not come further than the ones before it is
  /// followed by one more; then it ends, since what fails there fails each time. A machine that is
  /// away (Outcome::is_early) after a run is waited for: such a run says nothing of progress.
  bool Again(const Outcome& outcome, int64_t steps, double now);

  /// How the job ended: as its last run, but with the first cause of those that made no progress.
  const Outcome& outcome() const { return outcome_; }
  /// Of the last run, for people: "restart 2 of 3".
  std::string Count() const;
  /// Seconds until the next run is to begin: 0, or 1, 2, 4, ... to 60 while a machine is away.
  double Pause() const;

 private:
  const int most_;
  const double window_;
  std::deque<double> times_;      // of restarts within the window
  int64_t furthest_ = 0;          // the most steps that a run has done
  int fruitless_ = 0;             // restarts since then
  int away_ = 0;                  // runs in a row for which a machine was away
  std::optional<Outcome> first_;  // how the run failed that came furthest first
  Outcome outcome_;
};

/// "90", "90s", "15m", "1h", "2d" in seconds; none for another text.
std::optional<double> ParseDuration(const std::string& text);

}  // namespace strata::launcher
