// ParameterTable: the parameters of the whole model, in the order of layers, on every rank.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/comm/transport.h"
#include "engine/layers/axis/axis_comm.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/stage/flat_parameters.h"

namespace strata {

class ParameterTable {
 public:
  /// Collective. `own`: the parameters of this rank's stages, in the order of layers. Of the ranks
  /// that hold the same (replicas, and ranks of the model axis) one speaks for all; the others are
  /// silent. `axis`: the model axis; null where it has one rank.
  ParameterTable(std::vector<PlacedParameter> own, bool speaks, std::shared_ptr<AxisComm> axis,
                 Transport& transport);

  /// Chunks of squares (reductions.h) of all trainable parameters of the model.
  int64_t chunks() const { return chunks_; }
  /// The place among them of the first chunk of this rank's k-th parameter; -1 for a frozen one and
  /// for one that is counted elsewhere. Ranks that share a parameter add their squares up there.
  int64_t first_chunk(size_t k) const { return first_chunks_[k]; }

  enum class What { kValues, kGradients };
  /// Collective: digest and norm of every parameter of the model, tied ones at their first use,
  /// shared ones whole. Gradients of frozen parameters are left out.
  std::vector<TensorDigest> Digests(What what, Transport& transport) const;
  /// Collective: HistogramOf() every gradient, by its path, of the parameters of Digests().
  Value Histograms(double divisor, Transport& transport) const;
  /// Collective over the model axis: a copy of the parameter of this path, or of its gradient,
  /// whole, on the CPU. Undefined on ranks that do not have it, or are silent.
  at::Tensor Copy(const std::string& path, What what) const;

 private:
  /// Collective: {layer, path, what `tell` says of the whole tensor...} of every parameter.
  Value::List Tell(What what, const std::function<Value::List(const at::Tensor&)>& tell,
                   Transport& transport) const;
  at::Tensor Whole(const PlacedParameter& parameter, What what) const;

  std::vector<PlacedParameter> own_;
  bool speaks_;
  std::shared_ptr<AxisComm> axis_;
  std::vector<int64_t> first_chunks_;  // of own_
  int64_t chunks_ = 0;
};

}  // namespace strata
