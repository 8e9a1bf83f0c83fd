// MeasureLinks: what messages take between each two ranks, over the transport that a job would use.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "engine/comm/transport.h"
#include "engine/cost/link_table.h"

namespace strata {

/// The links that MeasureLinks() sends over: between all ranks, in both directions.
std::vector<LinkSpec> LinksBetweenAll(int ranks);

/// The other rank of each in round `round` of n - 1 (n even) or n: all pairs meet once, each rank
/// has one partner at a time, or with an odd number of ranks itself. The circle method: rank n - 1
/// stays, the others move on by one from round to round.
int PartnerOf(int rank, int round, int ranks);

/// Collective: sends small messages there and back, and large ones both ways at once, between all
/// pairs of ranks, as many at a time as there can be; for about `seconds` in all, more where single
/// messages take longer. A pair's latency is half of a small one's way there and back, its
/// bandwidth that of a large one, in each direction while the other one is busy too; of those that
/// a quarter is faster than. All ranks get the same table. `host`: the name of this rank's machine.
/// `device`: where the messages lie. Throws as the links do.
LinkTable MeasureLinks(Transport& transport, const std::string& host, at::Device device,
                       double seconds);

}  // namespace strata
