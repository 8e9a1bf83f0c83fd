// GatherTrace(): collects the traced actions of all ranks into one trace on rank 0. Torch-free,
// except for the transport.
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
  std::string id;  ///< equal for ranks that read the same clock
  std::function<int64_t()> now = &FlightRing::Now;
};

/// The clock of this machine.
TraceClock MachineClock();

/// The difference between a rank's clock and rank 0's in seconds: `add` to the rank's times to get
/// rank 0's; the result may be wrong by at most `error`.
struct ClockOffset {
  double add = 0;
  double error = 0;
};

/// Collective: computes the offset of each rank, on rank 0. Ranks that share rank 0's clock have
/// offset 0. For the others rank 0 broadcasts a question and waits until all have answered with
/// their time, which lies between question and answer. Of 8 rounds the one with the smallest error
/// counts.
std::vector<ClockOffset> AlignClocks(Transport& transport, const TraceClock& clock);

/// Collective: returns the trace of all ranks on rank 0, from the first step that all ranks have
/// completely; an empty trace on other ranks. Time 0 is the start of the first action.
schedule::Trace GatherTrace(const Tracer& tracer, Transport& transport, const std::string& name,
                            const TraceClock& clock = MachineClock());

/// Converts a rank's actions to JSON for rank 0, and back with the same bits.
std::string ToText(const std::vector<schedule::TracedAction>& actions);
std::vector<schedule::TracedAction> ParseActions(std::string_view text);

}  // namespace strata
