// How the M ranks of the model axis share layers (tensor parallelism; Megatron-LM, arXiv:1909.08053
// and 2205.05198). A layer says so with its argument `split`:
//
//   Linear              column    each rank has some of the outputs
//                       row       some of the inputs; the ranks' products are summed
//   Embedding           row       some of the vectors (the vocabulary is shared)
//                       column    a part of every vector
//   MultiheadAttention  heads     some of the heads
//   Transformer layers  heads     attention by heads, linear1 by column, linear2 by row; so by
//   itself
//                       sequence  the same, and what lies between (norms, dropout, residual
//                                 connections) is shared along the sequence
//                       none      not shared
//   LayerNorm           sequence  shared along the sequence
//
// Linear and Embedding with a split have Megatron-LM's names too: ColumnParallelLinear,
// RowParallelLinear, VocabParallelEmbedding.
//
// The declaration does not know M: with M = 1 `split` changes nothing. A layer takes and gives
// whole tensors, except where its neighbour on the same stage goes on with the parts (LayOut()).
#pragma once

#include <span>
#include <vector>

#include "engine/spec/layers.h"

namespace strata {

/// Throws ConfigError unless `ranks` ranks (at least 2) can share the layers: no layer is split; a
/// number that they share (features, heads, vocabulary, length of the sequence) is not divisible;
/// tied layers are split in different ways.
/// `inputs`: of each layer; may be empty where shapes are not known, then the forward pass finds
/// sequences that do not divide.
void CheckSplits(const std::vector<LayerSpec>& layers, const std::vector<TensorSpecs>& inputs,
                 int ranks);

/// The layers of one stage, with `takes` and `gives` decided, also inside containers. Parts stay
/// apart
///   from a column Linear (or Embedding) to a row Linear, across elementwise layers;
///   from a column Linear to a loss that takes parts, likewise (`loss_takes_parts`);
///   between layers split by the same dim of the sequence, likewise;
/// everywhere else each rank has the whole tensor. A Linear can refuse parts (gather_output = true,
/// input_is_parallel = false) and insist on them: throws ConfigError where its neighbour on the
/// stage does not go along.
std::vector<LayerSpec> LayOut(std::span<const LayerSpec> layers, bool loss_takes_parts);

/// Whether the loss can work on logits of which each rank has some of the classes: a
/// CrossEntropyLoss without class weights and label smoothing.
bool TakesParts(const LayerSpec& loss);

/// The dim along which a layer split by "sequence" shares it.
int SequenceDim(const LayerSpec& spec);

}  // namespace strata
