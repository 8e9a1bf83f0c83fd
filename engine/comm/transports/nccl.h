// The transport between GPUs. NCCL moves tensors, Gloo moves control data.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/groups/group.h"
#include "engine/comm/place.h"
#include "engine/comm/transport.h"

namespace strata {

/// Meets the other ranks as MakeGlooTransport() does and takes GPU `place.local_rank`. Then all
/// ranks open NCCL communicators in the same order: one of two ranks for every link, in the order
/// of `links`, and one for every group. They are opened up front, since opening one at its first
/// use could wait for a rank that is busy elsewhere. A link from a rank to itself has a
/// communicator of one rank (for tests on one GPU). Groups use NCCL's own collectives. The
/// `host_groups` are opened over Gloo, for tensors in the host's memory
/// (Transport::FindHostGroup()).
///
/// Each communicator has a CUDA stream of its own. Send() makes that stream wait for what the
/// current stream has queued. Wait() makes the current stream wait for the message. The host waits
/// for neither. Abort() aborts the communicators, which also ends kernels that spin on a lost peer.
/// Throws WorldError when there is no such GPU or NCCL fails; NCCL's text is in the message.
std::unique_ptr<Transport> MakeNcclTransport(const RankPlace& place,
                                             const std::vector<LinkSpec>& links,
                                             const std::vector<GroupSpec>& groups,
                                             const std::vector<GroupSpec>& host_groups,
                                             double timeout);

}  // namespace strata
