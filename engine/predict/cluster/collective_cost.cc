#include "engine/predict/cluster/collective_cost.h"

#include <algorithm>
#include <bit>

namespace strata::predict {
namespace {

double Transfer(const Link& link, double bytes) {
  return link.bandwidth > 0 ? bytes / link.bandwidth : 0;
}

/// log2, rounded up.
int Rounds(int ranks) { return std::bit_width(static_cast<unsigned>(ranks - 1)); }

/// Reduce-scatter or all-gather of ranks that are all as near to each other.
double HalfSeconds(const Link& link, int ranks, double bytes) {
  if (ranks <= 1) return 0;
  const bool halves = std::has_single_bit(static_cast<unsigned>(ranks));
  const int messages = halves ? Rounds(ranks) : ranks - 1;
  return messages * link.latency + Transfer(link, ShareSent(ranks, bytes));
}

double FlatAllReduce(const Link& link, int ranks, double bytes) {
  if (ranks <= 1) return 0;
  const double doubling = Rounds(ranks) * MessageSeconds(link, bytes);
  return std::min(doubling, 2 * HalfSeconds(link, ranks, bytes));
}

}  // namespace

double MessageSeconds(const Link& link, double bytes) {
  return link.latency + Transfer(link, bytes);
}

double ShareSent(int ranks, double bytes) { return bytes * (ranks - 1) / ranks; }

double ReduceScatterSeconds(const Group& group, double bytes) {
  return HalfSeconds(group.within, group.per_node, bytes) +
         HalfSeconds(group.between, group.nodes, bytes / group.per_node);
}

double AllGatherSeconds(const Group& group, double bytes) {
  return ReduceScatterSeconds(group, bytes);
}

double AllReduceSeconds(const Group& group, double bytes) {
  if (group.nodes == 1) return FlatAllReduce(group.within, group.per_node, bytes);
  return 2 * HalfSeconds(group.within, group.per_node, bytes) +
         FlatAllReduce(group.between, group.nodes, bytes / group.per_node);
}

}  // namespace strata::predict
