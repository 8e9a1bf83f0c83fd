// The cost of attention, which the transformer layers also have. attention.cc also declares
// MultiheadAttention.
#pragma once

#include "engine/spec/layers/costs/layer_tape.h"

namespace strata::layers {

struct AttentionSizes {
  double width = 0;  ///< of queries, whole
  double heads = 0;
  double dropout = 0;
  bool batch_first = false;
  double ranks = 1;  ///< that share the heads
};

/// Projections, attention, projection back. The ranks of the model axis have some heads each.
Traced CostOfAttention(LayerTape& tape, const LayerSpec& spec, const AttentionSizes& sizes,
                       const Traced& query, const Traced& key, const Traced& value);

}  // namespace strata::layers
