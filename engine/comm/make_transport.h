// The transport of a rank that is a process of its own, by name.
#pragma once

#include <memory>
#include <string>

#include "engine/comm/place.h"
#include "engine/comm/transport.h"

namespace strata {

/// `name` is "gloo" or "nccl" (threads of one process make their own, see make_engine.h).
/// `timeout`: seconds until the ranks must have met. Throws ConfigError for a transport that this
/// build or this machine does not have, and WorldError when the other ranks do not come.
std::unique_ptr<Transport> MakeTransport(const std::string& name, const RankPlace& place,
                                         double timeout);

}  // namespace strata
