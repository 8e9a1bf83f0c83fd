// The transport "threads": all ranks are threads of this process. A message is a reference to the
// sender's tensors, without a copy. Sender and receiver share the memory, so neither may write to
// it.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/transport.h"

namespace strata {

/// Makes the transports of all ranks, by rank. Each is used by one thread. They may be destroyed in
/// any order. `links` are all links that the job uses, without those of `groups`, which are added.
///
/// A send never waits. A waiting receiver polls for some microseconds before it sleeps, if there is
/// a core for every rank (patience.h).
///
/// On an accelerator the receiver's current stream waits for the work that the sender's stream had
/// queued when it sent. The host does not wait for it.
std::vector<std::unique_ptr<Transport>> MakeThreadTransports(
    int world_size, const std::vector<LinkSpec>& links, const std::vector<GroupSpec>& groups = {});

}  // namespace strata
