// What all ranks wrote down, as one trace on rank 0. Torch-free but for the transport.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/transport.h"
#include "engine/runtime/watch/tracer.h"
#include "engine/schedule/trace.h"

namespace strata {

/// The clock that a rank's Tracer reads.
struct TraceClock {
  std::string id;  ///< equal where two ranks read the same clock
  std::function<int64_t()> now = &FlightRing::Now;
};

/// This machine's clock.
TraceClock MachineClock();

/// How a rank's clock stands against rank 0's, in seconds: what to add to it, and by how much that
/// may be wrong at most.
struct ClockOffset {
  double add = 0;
  double error = 0;
};

/// Collective: the offset of each rank, on rank 0. Ranks with rank 0's clock have none. To all
/// others rank 0 says "now" and waits until all have answered with their time, which lies between;
/// of 8 rounds the quickest one counts.
std::vector<ClockOffset> AlignClocks(Transport& transport, const TraceClock& clock);

/// Collective: the trace of all ranks on rank 0, from the first step that all have as a whole; an
/// empty one on the others. Time 0 is when the first of its actions started.
schedule::Trace GatherTrace(const Tracer& tracer, Transport& transport, const std::string& name,
                            const TraceClock& clock = MachineClock());

/// A rank's actions on their way to rank 0, as JSON; what is read has the bits of what was written.
std::string ToText(const std::vector<schedule::TracedAction>& actions);
std::vector<schedule::TracedAction> ParseActions(std::string_view text);

}  // namespace strata
