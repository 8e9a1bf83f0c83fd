// Kept: carries the values of connections (engine/layers/connections.h) through one stage.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "engine/layers/connections.h"
#include "engine/layers/layer.h"

namespace strata {

/// A connection that begins in a stage, ends in it or passes through it.
struct KeptValue {
  Connection connection;
  size_t tensors = 0;  ///< number of tensors that it carries
};

/// Used for one forward pass through layers `begin` to `end` - 1. `values`: in the order in which
/// they are sent between stages. A stage receives and sends the tensors of the chain of layers,
/// followed by those of each value.
class Kept {
 public:
  /// `packed`: false if the data is not packed, so that a strata.documents keeps nothing.
  Kept(const std::vector<KeptValue>& values, int begin, int end, bool packed = false)
      : values_(values), begin_(begin), end_(end), packed_(packed) {}

  /// Removes the values that were kept before this stage from the stage's input.
  void TakeFromInput(Tensors& input);
  /// Call it before layer `layer`: appends the values that the layer joins to its inputs.
  void GiveTo(int layer, Tensors& inputs);
  /// Call it after the layer: removes the values that the layer keeps from its outputs.
  void TakeFrom(int layer, Tensors& outputs);
  /// The value that strata.documents keeps, the places of packed rows; null before it is there.
  const at::Tensor* documents() const;
  /// Appends the values that later stages need to the stage's output.
  void GiveToOutput(Tensors& output);

 private:
  bool IsThere(const Connection& connection) const { return packed_ || !connection.of_documents; }

  const std::vector<KeptValue>& values_;
  const int begin_, end_;
  const bool packed_;
  std::map<int, Tensors> kept_;  // by the index of the layer that keeps them
};

}  // namespace strata
