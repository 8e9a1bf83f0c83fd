// MakeTransport(): makes a transport, by its name, for a rank that is a process of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/place.h"
#include "engine/comm/transport.h"

namespace strata {

/// `name` is "gloo", "nccl", or "both": NCCL for tensors on the GPU and Gloo for tensors in the
/// host's memory (Transport::FindHostGroup()). Ranks that are threads use MakeThreadTransports()
/// instead. `links` and `groups` are all that the job will use, in the same order on all ranks. All
/// ranks must come within `timeout` seconds. Throws ConfigError for another name, and WorldError if
/// some ranks do not come or the CUDA library cannot be loaded.
std::unique_ptr<Transport> MakeTransport(const std::string& name, const RankPlace& place,
                                         const std::vector<LinkSpec>& links,
                                         const std::vector<GroupSpec>& groups, double timeout);

}  // namespace strata
