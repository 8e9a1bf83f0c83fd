// Multi-head attention, which the transformer layers use too.
#pragma once

#include <memory>
#include <vector>

#include "engine/layers/composite.h"
#include "engine/layers/crossing.h"

namespace strata {

/// The arguments of torch.nn.MultiheadAttention, and `causal`.
struct AttentionOptions {
  int64_t embed_dim = 0;
  int64_t num_heads = 0;
  double dropout = 0;
  bool bias = true;
  bool add_bias_kv = false;
  bool add_zero_attn = false;
  int64_t kdim = 0;  ///< features of the keys and
  int64_t vdim = 0;  ///< of the values; all three alike share one projection
  bool batch_first = false;
  bool causal = false;  ///< the user's choice; transformer layers choose for each call
};

/// torch.nn.MultiheadAttention without weights as a second output. Parameters, their order and
/// initial values are PyTorch's. Sequences are (T, N, E), with batch_first (N, T, E), without
/// PyTorch's transposition: a dropout after it meets the elements in another order there.
class MultiheadAttention : public CompositeLayer {
 public:
  /// `ends`: what happens to its inputs and its output when the heads are shared among ranks.
  explicit MultiheadAttention(const AttentionOptions& options, Ends ends = {});
  /// One tensor: query, key and value are the same; or the three of them.
  Tensors Forward(const Tensors& inputs, const Pass& pass) override;
  /// Attention with an explicit choice of the mask. Query i sees the keys 0..i when `causal`.
  at::Tensor Attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    bool causal, const Pass& pass);
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

  const AttentionOptions options_;
  const Ends ends_;
  const int64_t own_heads_;     // of this rank
  const int64_t own_features_;  // of all its heads
  const bool packed_;           // one in_proj_weight instead of three
  Layer* out_proj_;
  int bias_index_ = -1;  // of in_proj_bias among the parameters; -1: none
  int keys_index_ = -1;  // of bias_k; bias_v follows
};

}  // namespace strata
