// The transport "threads": all ranks are threads of this process. A message is a reference, nothing
// is copied; so the receiver shares the sender's memory, and neither may write to it.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/transport.h"

namespace strata {

/// The ends of all ranks, by rank. Each is to be used by one thread; they share what is between
/// them, so any of them may outlive the others. `links`: every direction that will be asked for,
/// but for those of `groups`.
///
/// A send never waits. A receiver that has to wait looks again for some microseconds before it
/// sleeps (when every rank can have a core of its own), since a sleeping thread costs more to wake
/// than an empty action takes.
///
/// On an accelerator the receiver's current stream waits for what the sender's stream had queued;
/// the host waits for nothing.
std::vector<std::unique_ptr<Transport>> MakeThreadTransports(
    int world_size, const std::vector<LinkSpec>& links, const std::vector<GroupSpec>& groups = {});

}  // namespace strata
