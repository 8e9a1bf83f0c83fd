// WaitFor(): the only place where the launcher waits. It never blocks in a write; bytes that cannot
// be written yet stay in a queue (Channel, OutputQueue), whose descriptor is a source until the
// queue is empty.
#pragma once

#include <poll.h>

#include <functional>
#include <limits>
#include <vector>

namespace strata::launcher {

/// A descriptor to wait for, and the function to call when it can be read (or written, with
/// POLLOUT).
struct Source {
  int fd;
  std::function<void()> ready;
  short events = POLLIN;
};

inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// The time of the machine's monotonic clock in seconds. All processes of a machine share it.
double MonotonicSeconds();

/// Waits until a source is ready, a signal arrives or MonotonicSeconds() reaches `deadline`; then
/// calls `ready` of all sources that are ready. Passes on their exceptions.
void WaitFor(const std::vector<Source>& sources, double deadline = kNever);

}  // namespace strata::launcher
