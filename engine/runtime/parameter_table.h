// ParameterTable: the parameters of the whole model, in the order of layers, on every rank.
#pragma once

#include <string>
#include <vector>

#include "engine/comm/transport.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/flat_parameters.h"

namespace strata {

class ParameterTable {
 public:
  /// Collective. `own`: the parameters of this rank's stages, in the order of layers. Ranks that
  /// hold what another holds too (replicas) are silent: `speaks` is false.
  ParameterTable(std::vector<PlacedParameter> own, bool speaks, Transport& transport);

  /// Parameters of the model.
  int size() const { return size_; }
  /// The place in the model of this rank's k-th parameter; -1 when the rank is silent.
  int place(size_t k) const { return places_[k]; }

  enum class What { kValues, kGradients };
  /// Collective: digest and norm of every parameter of the model. Gradients of frozen parameters
  /// are left out.
  std::vector<TensorDigest> Digests(What what, Transport& transport) const;

 private:
  std::vector<PlacedParameter> own_;
  bool speaks_;
  std::vector<int> places_;  // of own_, in the model
  int size_ = 0;
};

}  // namespace strata
