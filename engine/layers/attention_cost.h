// What the transformer layers have of attention: its cost, and the shapes of masks. attention.cc
// also declares MultiheadAttention.
#pragma once

#include <string_view>

#include "engine/layers/layer_tape.h"

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

/// Throws ShapeError unless the mask is (batch, keys), of bool or floating numbers.
void ExpectKeyPadding(const TensorSpec& mask, std::string_view name, int64_t batch, int64_t keys);
/// Throws ShapeError unless the mask is (queries, keys) or (batch * heads, queries, keys).
void ExpectAttentionMask(const TensorSpec& mask, std::string_view name, int64_t batches,
                         int64_t queries, int64_t keys);

}  // namespace strata::layers
