// What messages and collectives take, by the alpha-beta model: a message of n bytes takes
// alpha + n / bandwidth, alpha being the link's latency. Collectives are those of Thakur,
// Rabenseifner and Gropp (Optimization of collective communication operations in MPICH, 2005), for
// each call the fastest of them; sums are taken to be free beside the messages.
//
//   n ranks, B bytes                   latency           bandwidth
//   reduce-scatter, all-gather  ring   (n-1) alpha       (n-1)/n B
//                               halves log2 n alpha      (n-1)/n B   n a power of two
//   all-reduce   reduce-scatter and all-gather, or, for few bytes,
//                doubling              log2 n alpha      log2 n B    rounded up
//
// Ranks on several nodes do it in three parts: within each node, between the nodes (each rank of a
// node with its peers, a share each), within each node again.
#pragma once

#include "engine/forecast/step_costs.h"

namespace strata::search {

/// The ranks of a collective: `per_node` on each of `nodes` nodes.
struct Group {
  int per_node = 1;
  int nodes = 1;
  LinkRates within;   ///< one node
  LinkRates between;  ///< nodes

  int size() const { return per_node * nodes; }
};

/// A reduce-scatter, or an all-gather. `bytes`: of the whole buffer. A group of one takes no time.
double HalfAllReduceSeconds(const Group& group, double bytes);
double AllReduceSeconds(const Group& group, double bytes);

/// What each rank sends in a reduce-scatter or an all-gather: (n-1)/n of the buffer. An all-reduce
/// is both.
double ShareSent(int ranks, double bytes);

}  // namespace strata::search
