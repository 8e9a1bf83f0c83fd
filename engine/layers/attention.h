// Multi-head attention: the layer MultiheadAttention, which the transformer layers also use.
#pragma once

#include <memory>
#include <vector>

#include "engine/layers/axis/crossing.h"
#include "engine/layers/composite.h"

namespace strata {

/// The arguments of torch.nn.MultiheadAttention, plus `causal`.
struct AttentionOptions {
  int64_t embed_dim = 0;
  int64_t num_heads = 0;
  double dropout = 0;
  bool bias = true;
  bool add_bias_kv = false;
  bool add_zero_attn = false;
  int64_t kdim = 0;  ///< features of the keys
  int64_t vdim = 0;  ///< features of the values
  bool batch_first = false;
  bool causal = false;  ///< for Forward(); transformer layers choose for each Attend()
};

/// What attention does not see, beside what `causal` hides. A bool tensor is true where a query
/// does not see a key; another one is added to the scores. Undefined: nothing is hidden.
struct AttentionMasks {
  at::Tensor key_padding = {};  ///< (N, S), for all queries
  at::Tensor attention = {};    ///< (T, S) for all samples and heads, or (N * heads, T, S)
};

/// The tensor at `index`; undefined where a layer got fewer.
inline at::Tensor InputAt(const Tensors& inputs, size_t index) {
  return index < inputs.size() ? inputs[index] : at::Tensor();
}

/// The mask (queries, keys) by which the tokens that come in see themselves and earlier ones, those
/// that are kept (kept_tokens.h) included; then `extra` keys that every query sees. True = seen.
at::Tensor CausalMask(int64_t queries, int64_t keys, int64_t extra, const at::Tensor& like);

/// Whether an attention of `x` draws from a scope of its own (SplitSeed()), so that it depends on
/// no kernel what is drawn behind it: on CUDA, unless ranks of this axis share the heads.
bool SplitsDraws(const at::Tensor& x, const AxisComm* axis);

/// torch.nn.MultiheadAttention without its second output, the attention weights. Parameters, their
/// order and initial values are PyTorch's. Sequences are (T, N, E), with batch_first (N, T, E).
/// With batch_first PyTorch transposes its input and this layer does not; so dropout meets the
/// elements in another order and zeroes others.
class MultiheadAttention : public CompositeLayer {
 public:
  /// `ends`: how inputs and output cross when the ranks of the model axis share the heads.
  explicit MultiheadAttention(const AttentionOptions& options, Ends ends = {});
  /// `inputs` are query, key and value, or one tensor that is all three, then key_padding_mask and
  /// attn_mask (inputs.h). Key, value and masks may be undefined.
  Tensors Forward(const Tensors& inputs, const Pass& pass) override;
  /// Forward() with its own choice of the mask. With `causal`, query i sees the keys 0 to i only.
  at::Tensor Attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    bool causal, const Pass& pass, const AttentionMasks& masks = {});
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

 private:
  /// Query, key and value of every head, each (N, H, T, D).
  struct Heads {
    at::Tensor query;
    at::Tensor key;
    at::Tensor value;
  };
  Heads Project(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                const Pass& pass) const;
  std::vector<at::Tensor> ProjectWith(const Parameter& weight, const at::Tensor& x, int first,
                                      int count, const Pass& pass) const;
  at::Tensor HeadsFirst(const at::Tensor& projected) const;
  void AddKeys(Heads& heads) const;
  at::Tensor Join(const AttentionMasks& masks, const Heads& heads, int64_t keys, bool causal) const;

  const AttentionOptions options_;
  const Ends ends_;
  const int64_t own_heads_;     // how many heads this rank has
  const int64_t own_features_;  // features of all of these heads
  const bool packed_;           // one in_proj_weight, as query, key and value have equal features
  Layer* out_proj_;
  int bias_index_ = -1;  // index of in_proj_bias among the parameters; -1 = none
  int keys_index_ = -1;  // index of bias_k, which bias_v follows; -1 = none
};

}  // namespace strata
