// MeasureLinks: measures latency and bandwidth between each pair of ranks, over the transport that
// a job would use.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "engine/comm/transport.h"
#include "engine/cost/link_table.h"

namespace strata {

/// The links that MeasureLinks() needs: between all pairs of ranks, in both directions.
std::vector<LinkSpec> LinksBetweenAll(int ranks);

/// The partner of `rank` in round `round`, by the circle method: rank n - 1 stays while the others
/// rotate by one per round. In n - 1 rounds (n if n is odd) every pair meets once. With an odd
/// number of ranks, one rank per round has no partner and gets itself.
int PartnerOf(int rank, int round, int ranks);

/// Collective. Measures every pair of ranks, as many pairs at the same time as possible: small
/// messages go there and back, large ones in both directions at once. It takes about `seconds` in
/// all, or more if single messages are slow. The latency of a pair is half the round trip of a
/// small message. The bandwidth, in each direction while both are busy, follows from the time of a
/// large one. Both use the lower quartile of the times. All ranks get the same table. `host`: the
/// name of this rank's machine. `device`: where the messages are allocated. Throws as the links do.
LinkTable MeasureLinks(Transport& transport, const std::string& host, at::Device device,
                       double seconds);

}  // namespace strata
