// The transport between CPU processes. Large messages go through c10d's Gloo process group, small
// ones over wires (wires.h).
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "engine/comm/groups/group.h"
#include "engine/comm/place.h"
#include "engine/comm/transport.h"
#include "engine/comm/transports/wires.h"

namespace strata {

/// The wires of rank `rank`: with rank 0, or as rank 0 with all, for control data, and where links
/// or small tensors of groups go.
std::set<WireKey> WantedWires(int rank, int world_size, const std::vector<LinkSpec>& links,
                              const std::vector<GroupSpec>& groups);

/// Meets the other ranks at the store of `place` and connects to them. Listens on one address of
/// this machine only (OwnAddress(); 127.0.0.1 in a local job). Blocks until all ranks have come, at
/// most `timeout` seconds. Throws WorldError with the store's address when some do not come.
///
/// WantedWires() get a wire; `links` and `groups` are the same on every rank. All other links send
/// everything through Gloo. Sends are asynchronous. Only a few large tensors of a link may be under
/// way: a further Send() first waits for the oldest. A rank that waits for a small tensor polls for
/// some microseconds before it sleeps, if there is a core for every rank (patience.h).
///
/// Collectives of control data are sends to rank 0 and back; no rank waits for one of another's for
/// longer than `timeout`. Those of `groups` go over links
/// (link_group.h), which Abort() can end at once; Gloo's own collectives cannot be ended.
std::unique_ptr<Transport> MakeGlooTransport(const RankPlace& place,
                                             const std::vector<LinkSpec>& links,
                                             const std::vector<GroupSpec>& groups, double timeout);

}  // namespace strata
