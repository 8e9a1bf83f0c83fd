#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/families/fused_attention.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "engine/layers/random/random.h"

namespace strata {
namespace {

/// (N, H, T, D) -> (N, T, H, D), as the kernels take it, and back.
at::Tensor Turned(const at::Tensor& heads) { return heads.transpose(1, 2); }

/// What the backward needs of the forward. Tensors are turned.
struct Kept {
  at::Tensor query, key, value, output, logsumexp, seed, offset;
  double dropout;
  int64_t mask_type;  // 1: causal
};

class AttentionNode : public torch::autograd::Node {
 public:
  AttentionNode(torch::autograd::edge_list edges, Kept kept)
      : torch::autograd::Node(std::move(edges)), kept_(std::move(kept)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    if (!grads[0].defined()) return {{}, {}, {}};
    const at::AutoDispatchBelowADInplaceOrView nothing_is_recorded;
    const Kept& k = kept_;
    auto [query, key, value, bias] = at::_efficient_attention_backward(
        Turned(grads[0]), k.query, k.key, k.value, /*bias=*/std::nullopt, k.output,
        /*cu_seqlens_q=*/std::nullopt, /*cu_seqlens_k=*/std::nullopt, k.query.size(1),
        k.key.size(1), k.logsumexp, k.dropout, k.seed, k.offset, k.mask_type,
        /*bias_requires_grad=*/false, /*scale=*/std::nullopt, /*num_splits_key=*/1);
    return {Turned(query), Turned(key), Turned(value)};
  }
  void release_variables() override { kept_ = {}; }

 private:
  Kept kept_;
};

}  // namespace

bool CanFuseAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  if (!query.is_cuda()) return false;
  const at::ScalarType type = query.scalar_type();
  const int64_t width = query.size(3), size = static_cast<int64_t>(query.element_size());
  const bool has_kernel = type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
  const auto fits = [&](const at::Tensor* x) {
    return x->scalar_type() == type && x->size(3) == width && x->stride(3) == 1;
  };
  return has_kernel && width * size % 16 == 0 && query.numel() > 0 && key.numel() > 0 &&
         std::ranges::all_of(std::array{&query, &key, &value}, fits);
}

at::Tensor FusedAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          double dropout, bool causal) {
  const bool records = at::GradMode::is_enabled() &&
                       (query.requires_grad() || key.requires_grad() || value.requires_grad());
  Kept kept = {.query = Turned(query.detach()),
               .key = Turned(key.detach()),
               .value = Turned(value.detach()),
               .output = {},
               .logsumexp = {},
               .seed = {},
               .offset = {},
               .dropout = dropout,
               .mask_type = causal ? 1 : 0};
  {
    const at::NoGradGuard no_grad;
    std::optional<DeviceDraws> draws;
    if (dropout > 0) draws.emplace(query.device());
    std::tie(kept.output, kept.logsumexp, kept.seed, kept.offset, std::ignore, std::ignore) =
        at::_efficient_attention_forward(
            kept.query, kept.key, kept.value, /*bias=*/std::nullopt, /*cu_seqlens_q=*/std::nullopt,
            /*cu_seqlens_k=*/std::nullopt, /*max_seqlen_q=*/std::nullopt,
            /*max_seqlen_k=*/std::nullopt, dropout, kept.mask_type,
            /*compute_log_sumexp=*/records);
  }
  at::Tensor y = Turned(kept.output);
  if (!records) return y;
  y = y.detach();
  const std::shared_ptr<AttentionNode> node(
      new AttentionNode(torch::autograd::collect_next_edges(query, key, value), std::move(kept)),
      torch::autograd::deleteNode);
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace strata
