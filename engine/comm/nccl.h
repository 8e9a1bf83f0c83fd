// The transport between GPUs: NCCL for tensors, Gloo for control data.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/place.h"
#include "engine/comm/transport.h"

namespace strata {

/// Meets the other ranks as MakeGlooTransport does, takes GPU `place.local_rank`, and opens one
/// NCCL communicator of two ranks for every link, in the order of `links` on all ranks: opened up
/// front, so no first use can wait for a rank that is elsewhere. A link from a rank to itself is a
/// communicator of one rank (for tests on one GPU). Then one communicator for every group, with
/// NCCL's own collectives. `host_groups` are opened over Gloo, for tensors in the host's memory
/// (FindHostGroup).
///
/// Each communicator has a CUDA stream of its own. Send() makes that stream wait for what the
/// current stream has queued, Wait() makes the current stream wait for the message; the host waits
/// for neither. Abort() aborts the communicators, so that kernels that spin on a lost peer end.
/// Throws WorldError when there is no such GPU or NCCL fails; its text is in the message.
std::unique_ptr<Transport> MakeNcclTransport(const RankPlace& place,
                                             const std::vector<LinkSpec>& links,
                                             const std::vector<GroupSpec>& groups,
                                             const std::vector<GroupSpec>& host_groups,
                                             double timeout);

}  // namespace strata
