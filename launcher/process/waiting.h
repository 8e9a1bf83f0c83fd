// WaitFor(): the one place where the launcher waits. It never waits to write; what cannot be
// written yet stays in a queue (Channel, OutputQueue), whose descriptor is a source as long as it
// has bytes.
#pragma once

#include <poll.h>

#include <functional>
#include <limits>
#include <vector>

namespace strata::launcher {

/// A descriptor to wait for, and what to do when it can be read (or written, with POLLOUT).
struct Source {
  int fd;
  std::function<void()> ready;
  short events = POLLIN;
};

inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// The time of the machine's monotonic clock in seconds. All processes of a machine share it.
double MonotonicSeconds();

/// Waits until a source is ready, a signal comes or MonotonicSeconds() is `deadline`; then calls
/// `ready` of all sources that are. Passes on what that throws.
void WaitFor(const std::vector<Source>& sources, double deadline = kNever);

}  // namespace strata::launcher
