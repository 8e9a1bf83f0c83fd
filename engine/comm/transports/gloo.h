// The transport between CPU processes. Small messages go over wires (wires.h). Large ones are read
// from the sender's memory, where ranks of one machine may do that (peer_memory.h), else they go
// through c10d's Gloo process group.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/place.h"
#include "engine/comm/transport.h"
#include "engine/comm/transports/wires.h"

namespace strata {

/// The wires that a rank needs. Control data has one wire between rank 0 and every other rank. Each
/// direction in `links`, and each pair of ranks of WiredGroupLinks() (link_group.h), has two wires:
/// one for messages, and one on which the receiver confirms what it has read from the sender's
/// memory.
std::set<WireKey> WantedWires(int rank, int world_size, const std::vector<LinkSpec>& links,
                              const std::vector<GroupSpec>& groups);

/// Meets the other ranks at the store of `place` and connects to them. Listens on one address of
/// this machine only (OwnAddress(); 127.0.0.1 in a local job). Blocks until all ranks have come, at
/// most `timeout` seconds. Throws WorldError with the store's address if some do not come.
///
/// `links` and `groups` must be the same on every rank. Links without a wire (WantedWires()) send
/// everything through Gloo. Sends are asynchronous, but through Gloo only a few large tensors of a
/// link may be under way: a further Send() first waits for the oldest. A rank that waits for a
/// small tensor polls for some microseconds before it sleeps, if there is a core for every rank
/// (patience.h).
///
/// Collectives of control data are messages to rank 0 and back. A rank that has waited `timeout`
/// seconds for one of these messages throws PeerError. Collectives of `groups` use links
/// (link_group.h), because Abort() can end those at once; Gloo's own collectives cannot be ended.
std::unique_ptr<Transport> MakeGlooTransport(const RankPlace& place,
                                             const std::vector<LinkSpec>& links,
                                             const std::vector<GroupSpec>& groups, double timeout);

}  // namespace strata
