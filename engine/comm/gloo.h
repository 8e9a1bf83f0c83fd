// The transport between CPU processes, over c10d's Gloo process group.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/place.h"
#include "engine/comm/transport.h"

namespace strata {

/// Meets the other ranks at the store of `place` and connects to them. Listens only on the address
/// of `place.store_host` (127.0.0.1 in a local job). Blocks until all ranks are there, at most
/// `timeout` seconds. Throws WorldError with the store's address when they do not come.
///
/// Sends are asynchronous; at most a few per link are outstanding, then the oldest is waited for.
/// Collectives of control data go through rank 0 by sends and receives, those of groups go over
/// links, which Abort() can end at once (Gloo's own collectives cannot be ended).
std::unique_ptr<Transport> MakeGlooTransport(const RankPlace& place,
                                             const std::vector<GroupSpec>& groups, double timeout);

}  // namespace strata
