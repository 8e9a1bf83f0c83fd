// Seconds of messages and collectives by the alpha-beta model: a message of n bytes takes alpha + n
// / bandwidth, where alpha is the link's latency. The algorithms are those of Thakur, Rabenseifner
// and Gropp (Optimization of collective communication operations in MPICH, 2005); for each call the
// fastest one counts. Adding numbers is assumed to take no time.
//
//   n ranks, B bytes                   latency           bandwidth
//   reduce-scatter, all-gather  ring   (n-1) alpha       (n-1)/n B
//                               halves log2 n alpha      (n-1)/n B   n a power of two
//   all-reduce   reduce-scatter and all-gather, or, for few bytes,
//                doubling              log2 n alpha      log2 n B    rounded up
//
// Ranks on several nodes work in three parts: within each node, between the nodes (each rank with
// its peers on the other nodes, a share each), and within each node again.
#pragma once

#include "engine/forecast/step_costs.h"

namespace strata::search {

/// The ranks of a collective: `per_node` ranks on each of `nodes` nodes.
struct Group {
  int per_node = 1;
  int nodes = 1;
  LinkRates within;   ///< between ranks of one node
  LinkRates between;  ///< between nodes

  int size() const { return per_node * nodes; }
};

/// Seconds of a reduce-scatter or of an all-gather. `bytes`: of the whole buffer. A group of one
/// rank takes no time.
double HalfAllReduceSeconds(const Group& group, double bytes);
double AllReduceSeconds(const Group& group, double bytes);

/// Bytes that each rank sends in a reduce-scatter or in an all-gather: (n-1)/n of the buffer. An
/// all-reduce consists of both.
double ShareSent(int ranks, double bytes);

}  // namespace strata::search
