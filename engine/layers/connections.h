// Connections: values that skip layers, from strata.skip{"key"} to strata.join{"key"}. Between the
// two, a value travels with the tensors of the chain. At each cut in between it crosses together
// with the chain's own tensors, and its gradient comes back with theirs. A stage in between
// receives the value and passes it on; there is no direct link between distant stages. So programs,
// links and checks need not know about connections.
#pragma once

#include <string>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// One connection, by indices in the job's flat list of layers.
struct Connection {
  std::string key;
  int from = 0;  ///< the strata.skip
  int to = 0;    ///< the strata.join, behind it
  /// True for strata.documents. Its value is its second input, which only packed data gives, has
  /// the spec of its output, and is for all layers behind it (documents.h), up to the last one,
  /// `to`. No layer gets it as an input.
  bool of_documents = false;
};

/// True if the first layer of the job's list is a strata.documents.
bool HasDocuments(const std::vector<LayerSpec>& layers);

/// The connections of the job's flat list, ordered by `from`. Throws ConfigError with the layer's
/// place for: a join without an earlier skip of its key (the nearest key is named), a skip without
/// a join, a key that is used twice, a skip or join inside another
/// layer, and a strata.documents that is not the first layer.
std::vector<Connection> FindConnections(const std::vector<LayerSpec>& layers);

/// True when the connection's value crosses the cut before layer `cut`.
inline bool Crosses(const Connection& connection, int cut) {
  return connection.from < cut && cut <= connection.to;
}

/// True if the input of a job with a strata.documents is packed.
inline bool IsPacked(const TensorSpecs& input) { return input.size() > 1; }

/// The tensors at each of the `bounds`: the input of every stage, and last the output of the last
/// stage. At a cut these are the output of the layer before it, followed by the values of the
/// connections that cross it, in their order. `input` is the input of layer 0; `outputs` are the
/// outputs of all layers, as InferLayers() gives them.
std::vector<TensorSpecs> BoundarySpecs(const std::vector<LayerSpec>& layers,
                                       const std::vector<int>& bounds, const TensorSpecs& input,
                                       const std::vector<TensorSpecs>& outputs);

}  // namespace strata
