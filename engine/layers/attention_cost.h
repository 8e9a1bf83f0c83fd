// The cost of attention and the shape checks of its masks, which MultiheadAttention and the
// transformer layers share. Defined in attention_spec.cc.
#pragma once

#include <string_view>

#include "engine/layers/layer_tape.h"

namespace strata::layers {

struct AttentionSizes {
  double width = 0;  ///< features of the queries, over all ranks
  double heads = 0;
  double dropout = 0;
  bool batch_first = false;
  double ranks = 1;       ///< number of ranks that share the heads
  const char* path = "";  ///< where its parameters stand in the layer: "self_attn."
};

/// Writes the cost of the input projections, the attention and the output projection to the tape,
/// and returns the output. Each rank of the model axis has width / ranks of the features.
Traced CostOfAttention(LayerTape& tape, const LayerSpec& spec, const AttentionSizes& sizes,
                       const Traced& query, const Traced& key, const Traced& value);

/// Throws ShapeError unless the mask is (batch, keys), of bool or floating numbers.
void ExpectKeyPadding(const TensorSpec& mask, std::string_view name, int64_t batch, int64_t keys);
/// Throws ShapeError unless the mask is (queries, keys) or (batch * heads, queries, keys).
void ExpectAttentionMask(const TensorSpec& mask, std::string_view name, int64_t batches,
                         int64_t queries, int64_t keys);

}  // namespace strata::layers
