// LinkRates: what a message between two ranks takes.
#pragma once

#include <algorithm>

namespace strata {

/// One direction between two ranks, for one of them while all others send too.
struct LinkRates {
  double latency = 0;    ///< seconds
  double bandwidth = 0;  ///< bytes per second; 0 = any number at once

  /// False where messages take no time.
  bool takes_time() const { return latency > 0 || bandwidth > 0; }
  /// Of a message: while it occupies the link, and in all.
  double Transfer(double bytes) const { return bandwidth > 0 ? bytes / bandwidth : 0; }
  double Seconds(double bytes) const { return latency + Transfer(bytes); }
  /// What whoever waits for messages over both waits for.
  LinkRates SlowerOf(const LinkRates& other) const {
    const bool is_first = other.bandwidth == 0 || (bandwidth > 0 && bandwidth < other.bandwidth);
    return {std::max(latency, other.latency), is_first ? bandwidth : other.bandwidth};
  }
  bool operator==(const LinkRates&) const = default;
};

}  // namespace strata
