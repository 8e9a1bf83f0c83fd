// ParameterTable: the parameters of the whole model, in the order of layers, known to every rank.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/comm/transport.h"
#include "engine/layers/axis/axis_comm.h"
#include "engine/runtime/results.h"
#include "engine/runtime/stage/flat_parameters.h"

namespace strata {

class ParameterTable {
 public:
  /// Collective. `own`: the parameters of this rank's stages, in the order of layers. `speaks`:
  /// true if this rank reports them. Of the ranks that hold the same parameters (replicas, and
  /// ranks of the model axis) exactly one does. `axis`: the model axis; null if it has one rank.
  ParameterTable(std::vector<PlacedParameter> own, bool speaks, std::shared_ptr<AxisComm> axis,
                 Transport& transport);

  /// The number of chunks of squares (reductions.h) of all trainable parameters of the model.
  int64_t chunks() const { return chunks_; }
  /// The index, among all chunks, of the first chunk of this rank's k-th parameter; -1 for frozen
  /// parameters and for those that another rank counts. Ranks that hold parts of a parameter add
  /// their squares to the same chunks.
  int64_t first_chunk(size_t k) const { return first_chunks_[k]; }

  enum class What { kValues, kGradients };
  /// Collective: digest and norm of every parameter of the model. Tied parameters appear once, at
  /// their first use; divided ones are joined. Gradients of frozen parameters are left out.
  std::vector<TensorDigest> Digests(What what, Transport& transport) const;
  /// Collective: HistogramOf() of every gradient by its path, for the parameters of Digests().
  Value Histograms(double divisor, Transport& transport) const;
  /// Collective over the model axis: a copy of the whole parameter with this path, or of its
  /// gradient, on the CPU. Undefined on ranks that do not have or do not report the parameter.
  at::Tensor Copy(const std::string& path, What what) const;

 private:
  /// Collective: for every parameter an entry {layer, path, results of `tell` for the whole
  /// tensor...}.
  Value::List Tell(What what, const std::function<Value::List(const at::Tensor&)>& tell,
                   Transport& transport) const;
  at::Tensor Whole(const PlacedParameter& parameter, What what) const;

  std::vector<PlacedParameter> own_;
  bool speaks_;
  std::shared_ptr<AxisComm> axis_;
  std::vector<int64_t> first_chunks_;  // one per entry of own_
  int64_t chunks_ = 0;
};

}  // namespace strata
