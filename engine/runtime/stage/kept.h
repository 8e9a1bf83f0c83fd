// Kept: the values of connections (engine/layers/connections.h) on their way through one
// stage.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "engine/layers/connections.h"
#include "engine/layers/layer.h"

namespace strata {

/// A connection that begins in a stage, ends in it or passes it.
struct KeptValue {
  Connection connection;
  size_t tensors = 0;  ///< how many it keeps
};

/// Of one forward pass through layers `begin` to `end` - 1. `values`: in the order in which they
/// cross cuts. What a stage receives and sends is the chain's tensors, then those of each value.
class Kept {
 public:
  Kept(const std::vector<KeptValue>& values, int begin, int end)
      : values_(values), begin_(begin), end_(end) {}

  /// Takes what was kept before this stage off the stage's input.
  void TakeFromInput(Tensors& input);
  /// To be called before layer `layer`: adds what it joins.
  void GiveTo(int layer, Tensors& inputs);
  /// After it: takes what it keeps off its outputs.
  void TakeFrom(int layer, Tensors& outputs);
  /// Adds what goes on to the stage's output.
  void GiveToOutput(Tensors& output);

 private:
  const std::vector<KeptValue>& values_;
  const int begin_, end_;
  std::map<int, Tensors> kept_;  // by the layer that keeps
};

}  // namespace strata
