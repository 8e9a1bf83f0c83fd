// WaitFor() by poll().
#include "launcher/process/waiting.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>

#include "engine/base/fd.h"

namespace strata::launcher {

double MonotonicSeconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

void WaitFor(const std::vector<Source>& sources, double deadline) {
  std::vector<pollfd> polled;
  for (const Source& source : sources) polled.push_back({source.fd, source.events, 0});
  constexpr double kLongestMs = 1e9;
  const double left = std::clamp((deadline - MonotonicSeconds()) * 1000, 0., kLongestMs);
  const int timeout = deadline == kNever ? -1 : static_cast<int>(std::ceil(left));
  if (::poll(polled.data(), polled.size(), timeout) < 0) {
    if (errno == EINTR) return;
    ThrowErrno("poll");
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    if (polled[i].revents != 0) sources[i].ready();
  }
}

}  // namespace strata::launcher
