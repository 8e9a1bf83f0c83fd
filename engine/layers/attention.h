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

/// The masks of one attention, in addition to `causal`. A bool mask is true where a query must not
/// attend to a key; a mask of numbers is added to the scores. An undefined mask hides nothing.
struct AttentionMasks {
  at::Tensor key_padding = {};  ///< (N, S), for all queries
  at::Tensor attention = {};    ///< (T, S) for all samples and heads, or (N * heads, T, S)
};

/// The input at `index`, or an undefined tensor if the layer got fewer inputs.
inline at::Tensor InputAt(const Tensors& inputs, size_t index) {
  return index < inputs.size() ? inputs[index] : at::Tensor();
}

/// The causal mask, bool (queries, keys + extra): true where the query attends to the key. The
/// incoming tokens attend to themselves and to earlier tokens, including those kept from earlier
/// calls (kept_tokens.h). The last `extra` keys are visible to every query. `like` gives the
/// device.
at::Tensor CausalMask(int64_t queries, int64_t keys, int64_t extra, const at::Tensor& like);

/// True if attention on `x` draws its dropout from a RandomScope of its own (SplitSeed()). Then the
/// numbers that later operators draw do not depend on how many the attention kernel draws. This is
/// so on CUDA, unless the ranks of the model axis share the heads.
bool SplitsDraws(const at::Tensor& x, const AxisComm* axis);

/// torch.nn.MultiheadAttention without its second output, the attention weights. The parameters,
/// their order and their initial values are PyTorch's. Sequences are (T, N, E), or (N, T, E) with
/// batch_first. With batch_first PyTorch transposes its input, and this layer does not. So dropout
/// visits the elements in another order than in PyTorch and zeroes other elements.
class MultiheadAttention : public CompositeLayer {
 public:
  /// `ends` says how the inputs and the output cross the model axis when its ranks share the heads.
  explicit MultiheadAttention(const AttentionOptions& options, Ends ends = {});
  /// `inputs` are query, key, value, key_padding_mask and attn_mask (inputs.h). Key, value and
  /// masks may be undefined or left out: the key is then the query, and the value is the key. Two
  /// inputs are a sequence and its key_padding_mask.
  Tensors Forward(const Tensors& inputs, const Pass& pass) override;
  /// The same as Forward(), but the caller chooses `causal` and the masks. With `causal`, query i
  /// attends to the keys 0 to i only.
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
