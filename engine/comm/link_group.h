// Collectives over the links of a transport, for the groups of the transports "threads" and "gloo".
// It is not used over NCCL, which has collectives of its own.
//
//   all-reduce of 3 ranks          rank 0     rank 1     rank 2
//     every rank has               a0 b0 c0   a1 b1 c1   a2 b2 c2
//     parts go to their owners     a0 a1 a2   b0 b1 b2   c0 c1 c2     (reduce-scatter)
//     results go to all            A  B  C    A  B  C    A  B  C      (all-gather)
//
// Why the groups do not use Gloo's collectives: those cannot be aborted, so that a rank would wait
// for a dead peer until a time-out; links can. And Gloo's ring adds each part of a tensor in
// another order of ranks, so that the bits of a sum would depend on where the tensor is cut into
// parts. Replicas, ZeRO-1 and tied layers promise the same bits for any number of parts.
//
// Here each element is reduced on one rank, in ascending order of places. An all-reduce takes two
// messages one after the other, where a ring takes 2(n-1). Every rank sends and receives 2(n-1)/n
// of the tensor, as on a ring. Small tensors go whole: in a small group to all ranks, each of which
// reduces them in the same order; in a larger one to the rank at place 0 and, reduced, back from
// there, so that n ranks send 2(n-1) messages instead of n(n-1).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/transport.h"

namespace strata {

/// Appends the links that the groups need to `links`: all pairs of ranks of a group, in both
/// directions, on one channel for each group.
void AddGroupLinks(const std::vector<GroupSpec>& groups, std::vector<LinkSpec>& links);

/// The links from rank `rank` that deserve a connection (wire) of their own: in groups of up to 16
/// ranks all links, in larger groups only those that carry the small tensors of all-reduces and
/// barriers. Links to the rank are the same in the opposite direction.
std::vector<LinkSpec> WiredGroupLinks(const std::vector<GroupSpec>& groups, int rank);

/// kYes: a received tensor is the sender's own memory, so a sender waits until it has been read.
enum class SharesMemory { kNo, kYes };

/// Makes the groups of `specs` that contain the transport's rank, in the order of `specs`. The
/// transport must have the links of AddGroupLinks(specs) and must outlive the groups. Before a
/// group is destroyed, its calls must be done, or the transport aborted.
std::vector<std::unique_ptr<Group>> OpenLinkGroups(Transport& transport,
                                                   const std::vector<GroupSpec>& specs,
                                                   SharesMemory shares_memory);

/// The group of this name; null when there is none.
Group* FindByName(const std::vector<std::unique_ptr<Group>>& groups, const std::string& name);

}  // namespace strata
