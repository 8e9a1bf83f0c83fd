// Attend() projects query, key and value to this rank's heads, (N, H, T, D). If tokens are kept
// (kept_tokens.h), it appends the new keys and values to the kept ones, and then the additional
// keys of add_bias_kv and add_zero_attn. It builds a mask tensor only if `causal` alone does not
// describe what is hidden, since fused kernels are faster without one. The attention of all heads
// is one call, ATen's or, for dropout that other ranks share, AttentionWithDropout(). out_proj
// joins the heads, and its crossing sums over the ranks of the model axis.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/attention.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "engine/layers/documents.h"
#include "engine/layers/dropout.h"
#include "engine/layers/families.h"
#include "engine/layers/init.h"
#include "engine/layers/kept_tokens.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/linear.h"
#include "engine/layers/low_rank.h"
#include "engine/layers/packed_weight.h"
#include "engine/layers/random/random.h"

namespace strata {
namespace {

/// The rows begin..begin+size-1 of a parameter, as a parameter whose gradient is added to the same
/// rows.
Parameter Rows(const Parameter& parameter, int64_t begin, int64_t size) {
  if (size == parameter.value.size(0)) return parameter;
  Parameter rows = parameter;
  rows.value = parameter.value.narrow(0, begin, size);
  if (parameter.grad.defined()) rows.grad = parameter.grad.narrow(0, begin, size);
  rows.low_rank = RowsOf(parameter.low_rank, begin, size);
  if (parameter.packed) rows.packed = parameter.packed->Rows(begin, size);
  return rows;
}

/// Converts a mask to numbers that are added to the scores: a bool mask becomes -infinity where it
/// is true. `like` gives dtype and device.
at::Tensor Added(const at::Tensor& mask, const at::Tensor& like) {
  if (mask.scalar_type() != at::kBool) return mask.to(like.options());
  return at::zeros(mask.sizes(), like.options())
      .masked_fill_(mask, -std::numeric_limits<double>::infinity());
}

/// Computes dropout(softmax(q k^T / sqrt(D))) v with stored scores. Inputs and result are (N, H, T,
/// D), `mask` broadcasts to (N, H, T, S). Without dropout it has the bits of
/// scaled_dot_product_attention on the CPU; dropout is ApplyDropout(), which can draw for the heads
/// of all ranks. Half types are computed in float32 on every device, so that a GPU uses the CPU's
/// dropout numbers and the softmax is in float32 as in PyTorch's math path.
at::Tensor AttentionWithDropout(const at::Tensor& query, const at::Tensor& key,
                                const at::Tensor& value, const std::optional<at::Tensor>& mask,
                                double dropout, bool causal, const Part& heads) {
  const at::ScalarType type = query.scalar_type();
  const auto wide = [&](const at::Tensor& x) {
    const bool is_half = type == at::kHalf || type == at::kBFloat16;
    return is_half && x.scalar_type() == type ? x.to(at::kFloat) : x;
  };
  const double scale = std::pow(static_cast<double>(query.size(3)), -0.25);
  at::Tensor scores = wide(query).mul(scale).matmul(wide(key).mul(scale).transpose(2, 3));
  if (mask && mask->scalar_type() != at::kBool) {
    scores = scores.add(wide(*mask));
  } else if (causal || mask) {
    const at::Tensor seen = mask ? *mask : CausalMask(query.size(2), key.size(2), 0, query);
    scores = scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
  }
  // _safe_softmax gives zeros, not NaN, for a query all of whose keys are masked.
  return ApplyDropout(at::_safe_softmax(scores, 3), dropout, /*training=*/true, heads)
      .matmul(wide(value))
      .to(type);
}

/// Attention() of texts that are whole rows, or of one document of a row.
at::Tensor AttentionOfOne(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const std::optional<at::Tensor>& mask, double dropout, bool causal,
                          const Part& heads) {
  const bool draws_for_all = dropout > 0 && heads.axis;
  std::optional<RandomScope> own;
  if (dropout > 0 && SplitsDraws(query, heads.axis)) own.emplace(SplitSeed(query.device()));
  if (draws_for_all || (dropout > 0 && !query.is_cpu() && !query.is_cuda())) {
    return AttentionWithDropout(query, key, value, mask, dropout, causal, heads);
  }
  return at::scaled_dot_product_attention(query, key, value, mask, dropout, causal);
}

/// The attention of this rank's heads, within the documents of packed rows (documents.h). If the
/// ranks of the model axis share the heads (`heads`), dropout draws numbers for the heads of all
/// ranks from the thread's generator (random.h) and uses this rank's part of them.
at::Tensor Attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, double dropout, bool causal,
                     const Part& heads) {
  return WithinDocuments(query, key, value, mask, causal,
                         [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::optional<at::Tensor>& own_mask, bool is_causal) {
                           return AttentionOfOne(q, k, v, own_mask, dropout, is_causal, heads);
                         });
}

}  // namespace

bool SplitsDraws(const at::Tensor& x, const AxisComm* axis) { return x.is_cuda() && !axis; }

at::Tensor CausalMask(int64_t queries, int64_t keys, int64_t extra, const at::Tensor& like) {
  const auto options = like.options().dtype(at::kBool);
  const at::Tensor causal = at::ones({queries, keys}, options).tril(TokenPosition());
  return at::pad(causal, {0, extra}, "constant", 1);
}

// The initial values are drawn in PyTorch's order: out_proj, then the projections of query, key and
// value, then the extra key and value. In PyTorch's order of parameters out_proj is the last.
MultiheadAttention::MultiheadAttention(const AttentionOptions& options, Ends ends)
    : options_(options),
      ends_(std::move(ends)),
      own_heads_(options.num_heads / ends_.ranks()),
      own_features_(options.embed_dim / ends_.ranks()),
      packed_(options.kdim == options.embed_dim && options.vdim == options.embed_dim) {
  const int64_t embed = options.embed_dim;
  Ends row = ends_;
  row.enter = Crossing::kNone;  // its input is this rank's heads already
  auto out_proj = NewLinear(embed, embed, options.bias, std::move(row));
  if (packed_) {
    AddParameter("in_proj_weight", XavierUniform({3 * embed, embed}));
  } else {
    AddParameter("q_proj_weight", XavierUniform({embed, embed}));
    AddParameter("k_proj_weight", XavierUniform({embed, options.kdim}));
    AddParameter("v_proj_weight", XavierUniform({embed, options.vdim}));
  }
  for (Parameter& weight : parameters_) weight.only_products = true;
  if (options.bias) {
    bias_index_ = static_cast<int>(parameters_.size());
    AddParameter("in_proj_bias", Zeros({3 * embed}));
    const at::NoGradGuard no_grad;
    out_proj->parameters()[1].value.zero_();
  }
  if (options.add_bias_kv) {
    keys_index_ = static_cast<int>(parameters_.size());
    AddParameter("bias_k", XavierNormal({1, 1, embed}));
    AddParameter("bias_v", XavierNormal({1, 1, embed}));
  }
  out_proj_ = Adopt("out_proj", std::move(out_proj));
}

Tensors MultiheadAttention::Forward(const Tensors& inputs, const Pass& pass) {
  const bool is_masked_self = inputs.size() == 2;  // one sequence and its padding
  const at::Tensor& query = inputs[0];
  const at::Tensor key = is_masked_self ? query : InputAt(inputs, 1);
  const at::Tensor value = InputAt(inputs, 2);
  const AttentionMasks masks = {InputAt(inputs, is_masked_self ? 1 : 3), InputAt(inputs, 4)};
  const at::Tensor& keys = key.defined() ? key : query;
  return {Attend(query, keys, value.defined() ? value : keys, options_.causal, pass, masks)};
}

/// Adds all masks up to one mask for the scores of this rank's heads: (N or 1, heads or 1, T or 1,
/// S). `keys` is the number of keys without those that AddKeys() appended, which are visible to
/// every query.
at::Tensor MultiheadAttention::Join(const AttentionMasks& masks, const Heads& heads, int64_t keys,
                                    bool causal) const {
  const at::Tensor& like = heads.query;
  const int64_t batch = like.size(0), queries = like.size(2);
  const auto entered = [&](const at::Tensor& mask) {  // its gradient is summed over the ranks
    return mask.requires_grad() ? Cross(mask, Crossing::kCopy, ends_.axis, -1) : mask;
  };
  at::Tensor sum;
  const auto add = [&](const at::Tensor& mask) { sum = sum.defined() ? sum.add(mask) : mask; };
  if (masks.attention.defined()) {
    at::Tensor mask = Added(entered(masks.attention), like);
    const bool of_all = mask.dim() == 2;
    mask = mask.reshape({of_all ? 1 : batch, of_all ? 1 : -1, queries, keys});
    add(of_all || !ends_.axis ? mask : Part{ends_.axis.get(), 1}.Of(mask));
  }
  if (causal) {
    const at::Tensor later = CausalMask(queries, keys, 0, like).logical_not();
    add(Added(later, like).view({1, 1, queries, keys}));
  }
  if (masks.key_padding.defined()) {
    add(Added(entered(masks.key_padding), like).reshape({batch, 1, 1, keys}));
  }
  return at::pad(sum, {0, heads.key.size(2) - keys});
}

at::Tensor MultiheadAttention::Attend(const at::Tensor& query, const at::Tensor& key,
                                      const at::Tensor& value, bool causal, const Pass& pass,
                                      const AttentionMasks& masks) {
  const at::Tensor q = ends_.Enter(query);
  const at::Tensor k = key.is_same(query) ? q : ends_.Enter(key);
  const at::Tensor v = value.is_same(key) ? k : value.is_same(query) ? q : ends_.Enter(value);
  Heads heads = Project(q, k, v, pass);
  const int64_t before = TokenPosition();
  std::tie(heads.key, heads.value) = WithKept(this, heads.key, heads.value);
  // A single new token attends to all kept tokens, so it needs no mask.
  causal = causal && (before == 0 || heads.query.size(2) > 1);
  const int64_t keys = heads.key.size(2);
  AddKeys(heads);
  const int64_t extra = heads.key.size(2) - keys;
  std::optional<at::Tensor> mask;
  if (masks.key_padding.defined() || masks.attention.defined()) {
    mask = Join(masks, heads, keys, causal);
  } else if (causal && (extra > 0 || before > 0)) {
    mask = CausalMask(heads.query.size(2), keys, extra, query);
  }
  const at::Tensor mixed =  // (N, H, T, D)
      Attention(heads.query, heads.key, heads.value, mask, pass.training ? options_.dropout : 0,
                causal && !mask, {ends_.axis.get(), 1});
  const at::Tensor joined =
      options_.batch_first ? mixed.transpose(1, 2) : mixed.permute({2, 0, 1, 3});
  return out_proj_->Forward({joined.flatten(2)}, pass)[0];
}

/// Projects query, key and value to this rank's heads. Projections of the same tensor are computed
/// as one matrix product, as in PyTorch.
MultiheadAttention::Heads MultiheadAttention::Project(const at::Tensor& query,
                                                      const at::Tensor& key,
                                                      const at::Tensor& value,
                                                      const Pass& pass) const {
  const bool key_is_value = packed_ && key.is_same(value);
  std::vector<at::Tensor> parts;
  const auto add = [&](const at::Tensor& x, int first, int count) {
    const Parameter& weight = parameters_[packed_ ? 0 : first];
    for (at::Tensor& part : ProjectWith(weight, x, first, count, pass)) {
      parts.push_back(std::move(part));
    }
  };
  if (key_is_value && query.is_same(key)) {
    add(query, 0, 3);
  } else if (key_is_value) {
    add(query, 0, 1);
    add(key, 1, 2);
  } else {
    add(query, 0, 1);
    add(key, 1, 1);
    add(value, 2, 1);
  }
  return {parts[0], parts[1], parts[2]};
}

/// Computes `count` projections of x, beginning with number `first` (0 = query, 1 = key, 2 =
/// value).
std::vector<at::Tensor> MultiheadAttention::ProjectWith(const Parameter& weight,
                                                        const at::Tensor& x, int first, int count,
                                                        const Pass& pass) const {
  const int64_t begin = first * own_features_;
  const int64_t size = count * own_features_;
  std::optional<Parameter> bias;
  if (bias_index_ >= 0) bias = Rows(parameters_[bias_index_], begin, size);
  const at::Tensor projected =
      ApplyLinear(x, packed_ ? Rows(weight, begin, size) : weight, bias ? &*bias : nullptr, pass);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : projected.unflatten(-1, {count, own_heads_, -1}).unbind(2)) {
    parts.push_back(HeadsFirst(part));
  }
  return parts;
}

/// Transposes (T, N, H, D), or (N, T, H, D) with batch_first, to (N, H, T, D).
at::Tensor MultiheadAttention::HeadsFirst(const at::Tensor& projected) const {
  return options_.batch_first ? projected.transpose(1, 2) : projected.permute({1, 2, 0, 3});
}

/// Appends a learned key and value (add_bias_kv), then a key and value of zeros (add_zero_attn).
void MultiheadAttention::AddKeys(Heads& heads) const {
  const int64_t batch = heads.key.size(0);
  if (keys_index_ >= 0) {
    const auto row = [&](const Parameter& bias) {
      return bias.value.view({1, own_heads_, 1, -1}).expand({batch, -1, -1, -1});
    };
    heads.key = at::cat({heads.key, row(parameters_[keys_index_])}, 2);
    heads.value = at::cat({heads.value, row(parameters_[keys_index_ + 1])}, 2);
  }
  if (options_.add_zero_attn) {
    const at::Tensor zeros =
        at::zeros({batch, heads.key.size(1), 1, heads.key.size(3)}, heads.key.options());
    heads.key = at::cat({heads.key, zeros}, 2);
    heads.value = at::cat({heads.value, zeros}, 2);
  }
}

namespace {

std::unique_ptr<Layer> MakeAttention(const LayerSpec& spec, const BuildContext& context) {
  const Value& args = spec.args;
  AttentionOptions options;
  options.embed_dim = args["embed_dim"].as_int();
  options.num_heads = args["num_heads"].as_int();
  options.dropout = args["dropout"].as_double();
  options.bias = args["bias"].as_bool();
  options.add_bias_kv = args["add_bias_kv"].as_bool();
  options.add_zero_attn = args["add_zero_attn"].as_bool();
  options.kdim = args["kdim"].is_null() ? options.embed_dim : args["kdim"].as_int();
  options.vdim = args["vdim"].is_null() ? options.embed_dim : args["vdim"].as_int();
  options.batch_first = args["batch_first"].as_bool();
  options.causal = args["causal"].as_bool();
  const bool is_split = context.axis && !SplitOf(spec).empty();
  return std::make_unique<MultiheadAttention>(
      options, is_split ? Ends{context.axis, Crossing::kCopy, Crossing::kReduce} : Ends{});
}

constexpr LayerEntry kLayers[] = {{"MultiheadAttention", MakeAttention}};

}  // namespace

LayerTable AttentionLayers() { return kLayers; }

}  // namespace strata
