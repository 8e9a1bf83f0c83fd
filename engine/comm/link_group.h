// Groups over the links of a transport: the collectives between threads and over Gloo.
//
//   all-reduce of 3 ranks          rank 0     rank 1     rank 2
//     every rank has               a0 b0 c0   a1 b1 c1   a2 b2 c2
//     parts go to their owners     a0 a1 a2   b0 b1 b2   c0 c1 c2     (reduce-scatter)
//     results go to all            A  B  C    A  B  C    A  B  C      (all-gather)
//
// So each element is reduced in one place, in ascending order of ranks, and two messages follow
// each other, not 2(n-1) as on a ring; every rank sends and receives 2(n-1)/n of the tensor, as on
// a ring. Small tensors go whole to everybody, and each rank reduces them in the same order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/transport.h"

namespace strata {

/// Appends the directions that the groups need: all pairs of a group, on a channel of its own.
void AddGroupLinks(const std::vector<GroupSpec>& groups, std::vector<LinkSpec>& links);

/// Whether a received tensor is the sender's own memory: then the sender waits until it was read.
enum class SharesMemory { kNo, kYes };

/// The groups of `specs` that the transport's rank is in, in their order. The links are those of
/// AddGroupLinks(specs). Everything must outlive the groups. To destroy them while something that
/// was started is under way, the transport must have been aborted.
std::vector<std::unique_ptr<Group>> OpenLinkGroups(Transport& transport,
                                                   const std::vector<GroupSpec>& specs,
                                                   SharesMemory shares_memory);

/// The one of this name; null when there is none.
Group* FindByName(const std::vector<std::unique_ptr<Group>>& groups, const std::string& name);

}  // namespace strata
