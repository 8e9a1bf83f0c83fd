// The transport of a rank that is a process of its own, by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/place.h"
#include "engine/comm/transport.h"

namespace strata {

/// `name` is "gloo", "nccl" (threads of one process make their own, see make_engine.h), or "both":
/// NCCL for tensors on the GPU and Gloo for those in the host's memory
/// (Transport::FindHostGroup()). `links`: every direction that will be asked for, in the order in
/// which all ranks open them, and `groups` likewise. `timeout`: seconds until the ranks must have
/// met. Throws ConfigError for another name, and WorldError when the other ranks do not come or the
/// CUDA library cannot be loaded.
std::unique_ptr<Transport> MakeTransport(const std::string& name, const RankPlace& place,
                                         const std::vector<LinkSpec>& links,
                                         const std::vector<GroupSpec>& groups, double timeout);

}  // namespace strata
