// Connections: values that go past layers, from strata.skip{"key"} to strata.join{"key"}. Between
// the two a value travels beside the chain: where a cut lies in between, it crosses with the
// chain's own tensors, and its gradient comes back with theirs. So programs, links and checks know
// nothing of connections.
//
// It is not a link of its own between two distant stages: a stage in between receives the value and
// passes it on.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/layer_spec.h"
#include "engine/spec/tensor_spec.h"

namespace strata {

struct Connection {
  std::string key;
  int from = 0;  ///< the layer that keeps
  int to = 0;    ///< the later layer that takes
};

/// Of the job's flat list, ordered by `from`. Throws ConfigError with the layer's place: a join
/// without an earlier skip of that key (the nearest key is named), a skip that no join takes, a key
/// that is used twice, either of the two inside another layer.
std::vector<Connection> FindConnections(const std::vector<LayerSpec>& layers);

/// Whether the connection's value crosses the cut before layer `cut`.
inline bool Crosses(const Connection& connection, int cut) {
  return connection.from < cut && cut <= connection.to;
}

/// What enters every stage, and, last, what leaves the last one: `bounds.size()` elements. At a cut
/// between two stages the output of the layer before, then the values of the connections that
/// cross, in their order. `input`: of layer 0; `outputs`: of every layer, as InferLayers() gives.
std::vector<TensorSpecs> BoundarySpecs(const std::vector<LayerSpec>& layers,
                                       const std::vector<int>& bounds, const TensorSpecs& input,
                                       const std::vector<TensorSpecs>& outputs);

}  // namespace strata
