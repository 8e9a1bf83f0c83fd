// The transport between CPU processes: c10d's Gloo process group, and wires of our own (wires.h)
// for small tensors between neighbouring stages.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/place.h"
#include "engine/comm/transport.h"

namespace strata {

/// Meets the other ranks at the store of `place` and connects to them. Listens only on one address
/// of this machine (OwnAddress(); 127.0.0.1 in a local job). Blocks until all ranks are there, at
/// most `timeout` seconds. Throws WorldError with the store's address when they do not come.
///
/// `links`: the directions that get a wire each, the same on every rank; links beyond those send
/// everything through Gloo. Sends are asynchronous; of large tensors at most a few per link are
/// outstanding, then the oldest is waited for. A rank that waits for a small one looks again for
/// some microseconds before it sleeps, when every rank can have a core of its own.
///
/// Collectives of control data go through rank 0 by sends and receives, those of groups go over
/// links, which Abort() can end at once (Gloo's own collectives cannot be ended).
std::unique_ptr<Transport> MakeGlooTransport(const RankPlace& place,
                                             const std::vector<LinkSpec>& links,
                                             const std::vector<GroupSpec>& groups, double timeout);

}  // namespace strata
