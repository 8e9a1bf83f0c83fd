// Splits: how the M ranks of the model axis share layers (tensor parallelism; Megatron-LM,
// arXiv:1909.08053 and 2205.05198). A layer's argument `split` says what each rank has:
//
//   Linear              column    some of the outputs
//                       row       some of the inputs; the ranks' products are summed
//   Embedding           row       some of the vectors (the vocabulary is shared)
//                       column    a part of every vector
//   MultiheadAttention  heads     some of the heads; GroupedQueryAttention likewise
//   SwiGLU              hidden    some of the features between its linear layers
//   Transformer layers  heads     (the default) attention by heads, linear1 by column, linear2 by
//                                 row
//                       sequence  the same; norms, dropout and residual connections are shared
//                                 along the sequence
//                       none      the whole layer
//   LayerNorm           sequence  a part of the sequence
//
// Megatron-LM's names stand for layers with a split: ColumnParallelLinear, RowParallelLinear,
// VocabParallelEmbedding.
//
// With M = 1 `split` has no effect. A layer's input and output are whole tensors, except where the
// next layer on the same stage works on the same parts (LayOut()).
#pragma once

#include <span>
#include <vector>

#include "engine/layers/layer_types.h"

namespace strata {

/// Throws ConfigError if `ranks` ranks (at least 2) cannot share the layers. The reasons: no layer
/// is split; a number that they share (features, heads, vocabulary, length of the sequence) is not
/// divisible by `ranks`; a norm is over the sequence that it shares; tied layers have different
/// splits.
/// `inputs` are the inputs of each layer. It may be empty when shapes are unknown; then the forward
/// pass throws for sequences that are not divisible, as it does for those inside of a layer that
/// the script made. `script` may be null when no layer is scripted.
void CheckSplits(const std::vector<LayerSpec>& layers, const std::vector<TensorSpecs>& inputs,
                 int ranks, Script* script = nullptr);

/// The layers of one stage with `input_shard` and `output_shard` filled in, also inside containers.
/// Between two layers each rank has only its part of the tensor
///   from a column Linear or Embedding to a row Linear,
///   from a column Linear or Embedding to the loss, if `loss_takes_parts`,
///   between layers that are split along the same dim of the sequence,
/// also with elementwise layers in between. Elsewhere each rank has the whole tensor. A Linear can
/// forbid parts (gather_output = true, input_is_parallel = false) or demand them (the opposite
/// values). Throws ConfigError when a demand cannot be met, since the neighbour on the stage works
/// on whole tensors.
std::vector<LayerSpec> LayOut(std::span<const LayerSpec> layers, bool loss_takes_parts);

/// True when the loss can work if each rank has the logits of some of the classes only: for a
/// CrossEntropyLoss without class weights and label smoothing.
bool TakesParts(const LayerSpec& loss);

/// The dim of the sequence for a layer with split = "sequence".
int SequenceDim(const LayerSpec& spec);

}  // namespace strata
