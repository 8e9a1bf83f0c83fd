#include "engine/search/cluster/collective_cost.h"

#include <algorithm>
#include <bit>

namespace strata::search {
namespace {

/// log2(ranks), rounded up.
int Rounds(int ranks) { return std::bit_width(static_cast<unsigned>(ranks - 1)); }

/// Seconds of a reduce-scatter or all-gather among ranks with equal links.
double HalfSeconds(const LinkRates& link, int ranks, double bytes) {
  if (ranks <= 1) return 0;
  const bool halves = std::has_single_bit(static_cast<unsigned>(ranks));
  const int messages = halves ? Rounds(ranks) : ranks - 1;
  return messages * link.latency + link.Transfer(ShareSent(ranks, bytes));
}

double FlatAllReduce(const LinkRates& link, int ranks, double bytes) {
  if (ranks <= 1) return 0;
  const double doubling = Rounds(ranks) * link.Seconds(bytes);
  return std::min(doubling, 2 * HalfSeconds(link, ranks, bytes));
}

}  // namespace

double ShareSent(int ranks, double bytes) { return bytes * (ranks - 1) / ranks; }

double HalfAllReduceSeconds(const Group& group, double bytes) {
  return HalfSeconds(group.within, group.per_node, bytes) +
         HalfSeconds(group.between, group.nodes, bytes / group.per_node);
}

double AllReduceSeconds(const Group& group, double bytes) {
  if (group.nodes == 1) return FlatAllReduce(group.within, group.per_node, bytes);
  return 2 * HalfSeconds(group.within, group.per_node, bytes) +
         FlatAllReduce(group.between, group.nodes, bytes / group.per_node);
}

}  // namespace strata::search
