// LinkRates: latency and bandwidth of the link between two ranks.
#pragma once

#include <algorithm>

namespace strata {

/// The rates of one direction of a link, as one rank sees them while all other ranks send too.
struct LinkRates {
  double latency = 0;    ///< seconds
  double bandwidth = 0;  ///< bytes per second; 0 = unlimited

  /// False if messages take no time.
  bool takes_time() const { return latency > 0 || bandwidth > 0; }
  /// Seconds for which a message of `bytes` occupies the link. Seconds() adds the latency.
  double Transfer(double bytes) const { return bandwidth > 0 ? bytes / bandwidth : 0; }
  double Seconds(double bytes) const { return latency + Transfer(bytes); }
  /// The rates for a rank that waits for a message over each of the two links: the larger latency
  /// and the smaller bandwidth.
  LinkRates SlowerOf(const LinkRates& other) const {
    const bool is_first = other.bandwidth == 0 || (bandwidth > 0 && bandwidth < other.bandwidth);
    return {std::max(latency, other.latency), is_first ? bandwidth : other.bandwidth};
  }
  bool operator==(const LinkRates&) const = default;
};

}  // namespace strata
