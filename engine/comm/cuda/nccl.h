// The transport "nccl", between GPUs. NCCL moves tensors on the GPU; another transport moves
// control data.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/cuda/nccl_calls.h"
#include "engine/comm/group.h"
#include "engine/comm/transport.h"

namespace strata {

/// A transport whose control data goes over `control`, which has the host groups too. All ranks
/// open NCCL communicators in the same order: one of two ranks for every link, in the order of
/// `links`, and one for every group. They are opened up front, since opening one at its first use
/// could wait for a rank that is busy elsewhere. A link from a rank to itself has a communicator of
/// one rank (for tests on one GPU). Groups use NCCL's own collectives. `nccl` must outlive the
/// transport; `device` is the calling thread's (UseDevice()).
///
/// Each communicator has a stream of its own. Send() makes that stream wait for what the
/// current stream has queued. Wait() makes the current stream wait for the message. The host waits
/// for neither. Abort() aborts the communicators, which also ends kernels that spin on a lost peer.
/// Throws WorldError when NCCL fails; NCCL's text is in the message. Throws PeerError when the
/// communicators are not open after `timeout` seconds.
std::unique_ptr<Transport> MakeNcclTransport(NcclCalls& nccl, c10::Device device,
                                             std::unique_ptr<Transport> control,
                                             const std::vector<LinkSpec>& links,
                                             const std::vector<GroupSpec>& groups, double timeout);

}  // namespace strata
