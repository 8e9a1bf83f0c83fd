// Replaces scaled_dot_product_attention() on CUDA by a version that gives the same bits in every
// run.
//
// LibTorch sums a gradient of fused attention in the order in which thread blocks happen to finish.
// Here the same kernels sum in one fixed order: FlashAttention-2 (Dao, arXiv:2307.08691) in half
// precision without a mask, otherwise CUTLASS' kernels (Rabe and Staats, arXiv:2112.05682), and
// attention with stored scores if neither fits. On one H100, 8 x 12 heads of 64 features and 1,024
// tokens, causal, with dropout, in bf16, take 93 us forward and 303 us backward with the first, 268
// us and 1,190 us with the second.
//
// For short sequences CUTLASS' kernels are faster, since those of FlashAttention work on blocks of
// 128 tokens. With 8,192 tokens in all, 8 heads of 64 features, causal, with dropout, forward and
// backward together:
//
//   tokens a sequence        16    32    64    80   128   256   512
//   FlashAttention-2, us    523   280   155   144    98   114   172
//   CUTLASS, us             192   113    81   149   121   182   410
//
// Heads of 128 features do not gain: with 16 tokens FlashAttention takes 544 us and CUTLASS 906 us,
// with 64 tokens 192 us and 291 us.
//
// Packed rows come with a mask that says which documents it stands for (document_mask.h). The same
// kernels then take the documents of all rows as sequences of several lengths, without the mask.
// The number of sequences is the most that the data has, so that the host need not wait for the
// documents of this batch; sequences that are missing are empty and end at once.
//
// FlashAttention's order depends on the process-wide switch for deterministic algorithms. While the
// switch is on, operators on other threads fail if they have no deterministic algorithm. So if
// several ranks are threads of one process, FlashAttention must be off:
// Context::setSDPUseFlash(false), which selects CUTLASS' kernels instead.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/cuda/cuda_attention.h"

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/layers/document_mask.h"

namespace strata {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

struct Call {
  OptionalTensor bias;  ///< added to scores, (N, H, T, S)
  double dropout;
  bool causal;
  std::optional<double> scale;
  int64_t rows;           ///< N
  int64_t queries, keys;  ///< T and S, or of the longest document
  OptionalTensor starts;  ///< DocumentMask::starts; none if each row is one sequence
};

/// The tensors that the backward needs of the forward, as the kernels take them: (N, T, H, D), and
/// of documents (1, N * T, H, D).
struct Attended : Call {
  at::Tensor query, key, value;
  at::Tensor output = {}, logsumexp = {}, seed = {}, offset = {};
};

/// (N, H, T, D) as the kernels take it.
at::Tensor Laid(const at::Tensor& heads, const Call& call) {
  const at::Tensor turned = heads.transpose(1, 2);
  return call.starts ? turned.flatten(0, 1).unsqueeze(0) : turned;
}

/// What the kernels give, as (N, H, T, D).
at::Tensor Back(const at::Tensor& laid, const Call& call) {
  const at::Tensor rows = call.starts ? laid.squeeze(0).unflatten(0, {call.rows, -1}) : laid;
  return rows.transpose(1, 2);
}

/// While an object lives, the switch for deterministic algorithms is on, so FlashAttention sums in
/// one order.
class InOneOrder {
 public:
  InOneOrder() {
    at::Context& context = at::globalContext();
    context.setDeterministicFillUninitializedMemory(false);
    context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  }
  ~InOneOrder() {
    at::Context& context = at::globalContext();
    context.setDeterministicAlgorithms(was_, warned_);
    context.setDeterministicFillUninitializedMemory(filled_);
  }
  InOneOrder(const InOneOrder&) = delete;
  InOneOrder& operator=(const InOneOrder&) = delete;

 private:
  const bool was_ = at::globalContext().deterministicAlgorithms();
  const bool warned_ = at::globalContext().deterministicAlgorithmsWarnOnly();
  const bool filled_ = at::globalContext().deterministicFillUninitializedMemory();
};

struct Flash {
  static void Forward(Attended& a, bool) {
    std::tie(a.output, a.logsumexp, a.seed, a.offset, std::ignore) = at::_flash_attention_forward(
        Sequences(a.query, a), Sequences(a.key, a), Sequences(a.value, a), a.starts, a.starts,
        a.queries, a.keys, a.dropout, a.causal, /*return_debug_mask=*/false, a.scale);
  }
  static torch::autograd::variable_list Backward(const Attended& a, const at::Tensor& gradient) {
    const InOneOrder in_one_order;
    const at::Tensor starts = a.starts.value_or(at::Tensor());
    const auto [query, key, value] = at::_flash_attention_backward(
        Sequences(Laid(gradient, a), a), Sequences(a.query, a), Sequences(a.key, a),
        Sequences(a.value, a), a.output, a.logsumexp, starts, starts, a.queries, a.keys, a.dropout,
        a.causal, a.seed, a.offset, a.scale);
    return {Back(query, a), Back(key, a), Back(value, a)};
  }

 private:
  /// Of documents these kernels take (N * T, H, D).
  static at::Tensor Sequences(const at::Tensor& laid, const Call& call) {
    return call.starts ? laid.squeeze(0) : laid;
  }
};

struct Cutlass {
  static int64_t MaskType(const Attended& a) { return a.causal ? 1 : 0; }
  static void Forward(Attended& a, bool records) {
    std::tie(a.output, a.logsumexp, a.seed, a.offset, std::ignore, std::ignore) =
        at::_efficient_attention_forward(a.query, a.key, a.value, a.bias, a.starts, a.starts,
                                         a.queries, a.keys, a.dropout, MaskType(a),
                                         /*compute_log_sumexp=*/records, a.scale);
  }
  /// With num_splits_key = 1, a single thread block sums over all keys of a query, which fixes the
  /// order.
  static torch::autograd::variable_list Backward(const Attended& a, const at::Tensor& gradient) {
    const auto [query, key, value, bias] = at::_efficient_attention_backward(
        Laid(gradient, a), a.query, a.key, a.value, a.bias, a.output, a.starts, a.starts, a.queries,
        a.keys, a.logsumexp, a.dropout, a.seed, a.offset, MaskType(a),
        /*bias_requires_grad=*/false, a.scale, /*num_splits_key=*/1);
    return {Back(query, a), Back(key, a), Back(value, a)};
  }
};

template <class Kernels>
class AttentionNode : public torch::autograd::Node {
 public:
  AttentionNode(torch::autograd::edge_list edges, Attended attended)
      : torch::autograd::Node(std::move(edges)), attended_(std::move(attended)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    if (!grads[0].defined()) return {{}, {}, {}};
    TORCH_CHECK(!at::GradMode::is_enabled(), "attention's gradient has no gradient on CUDA");
    const at::AutoDispatchBelowADInplaceOrView nothing_is_recorded;
    return Kernels::Backward(attended_, grads[0]);
  }
  void release_variables() override { attended_ = {}; }

 private:
  Attended attended_;
};

template <class Kernels>
at::Tensor Attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const Call& call) {
  Attended attended = {call, Laid(query.detach(), call), Laid(key.detach(), call),
                       Laid(value.detach(), call)};
  const bool records = at::GradMode::is_enabled() &&
                       (query.requires_grad() || key.requires_grad() || value.requires_grad());
  {
    const at::NoGradGuard no_grad;
    Kernels::Forward(attended, records);
  }
  at::Tensor y = Back(attended.output, call);
  if (!records) return y;
  y = y.detach();
  const std::shared_ptr<AttentionNode<Kernels>> node(
      new AttentionNode<Kernels>(torch::autograd::collect_next_edges(query, key, value),
                                 std::move(attended)),
      torch::autograd::deleteNode);
  torch::autograd::set_history(y, node);
  return y;
}

/// The kernels need the width of heads and the rows of masks in multiples of so many elements.
constexpr int64_t kAligned = 8;

/// Converts the mask to numbers that are added to the scores, in the query's type: (N, H, T, S).
/// Rows are aligned to kAligned elements.
at::Tensor BiasOf(const at::Tensor& mask, const at::Tensor& query, const at::Tensor& key) {
  at::Tensor bias = mask.to(query.scalar_type());
  if (mask.scalar_type() == at::kBool) {
    bias = at::zeros(mask.sizes(), query.options())
               .masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
  }
  const int64_t keys = key.size(2);
  std::vector<int64_t> rows = bias.sizes().vec();
  rows.back() = keys;
  bias = at::pad(bias.expand(rows), {0, (kAligned - keys % kAligned) % kAligned});
  return bias.narrow(-1, 0, keys).expand({query.size(0), query.size(1), query.size(2), keys});
}

/// Pads the heads with zeros to a width that the kernels take. The zeros do not change the scores.
at::Tensor FilledUp(const at::Tensor& heads) {
  // Flattened, since at::pad may choose other strides for a single head.
  const at::Tensor rows = heads.flatten(0, 1);
  const at::Tensor filled = at::pad(rows, {0, kAligned - heads.size(-1) % kAligned});
  return filled.unflatten(0, {heads.size(0), heads.size(1)});
}

/// True if CUTLASS' kernels are faster than FlashAttention's (see the table above).
bool IsShort(const Call& call, int64_t width) {
  constexpr int64_t kShort = 64, kNarrow = 64;
  return call.queries <= kShort && call.keys <= kShort && width <= kNarrow;
}

bool IsFused(at::SDPBackend choice) {
  return choice == at::SDPBackend::flash_attention || choice == at::SDPBackend::efficient_attention;
}

}  // namespace

at::Tensor ScaledDotProductAttention(const at::Tensor& query, const at::Tensor& key,
                                     const at::Tensor& value, const OptionalTensor& mask,
                                     double dropout, bool causal, std::optional<double> scale,
                                     bool grouped) {
  const auto again = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         std::optional<double> by) {
    return ScaledDotProductAttention(q, k, v, mask, dropout, causal, by, /*grouped=*/false);
  };
  const bool has_heads = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  if (has_heads && grouped && key.size(1) > 0 && query.size(1) % key.size(1) == 0) {
    const int64_t times = query.size(1) / key.size(1);
    return again(query, key.repeat_interleave(times, 1), value.repeat_interleave(times, 1), scale);
  }
  const int64_t width = query.size(-1);
  if (has_heads && width % kAligned != 0 && key.size(3) == width && value.size(3) == width) {
    const double by = scale.value_or(1 / std::sqrt(static_cast<double>(width)));
    return again(FilledUp(query), FilledUp(key), FilledUp(value), by).narrow(-1, 0, width);
  }
  const bool may_fuse = has_heads && query.numel() > 0 && key.numel() > 0 && value.numel() > 0 &&
                        !(mask && mask->requires_grad());
  Call call = {.bias = {},
               .dropout = dropout,
               .causal = causal,
               .scale = scale,
               .rows = query.size(0),
               .queries = query.size(-2),
               .keys = key.size(-2),
               .starts = {}};
  auto choice = at::SDPBackend::math;
  const auto choose = [&] {
    choice = static_cast<at::SDPBackend>(
        at::_fused_sdp_choice(query, key, value, call.bias, dropout, call.causal, scale, grouped));
  };
  const DocumentMask* const documents = may_fuse ? DocumentMaskOf(mask) : nullptr;
  if (documents) {
    call.causal = documents->causal;
    choose();
    if (IsFused(choice)) {
      call.starts = documents->starts;
      call.queries = call.keys = documents->longest;
    } else {
      call.causal = causal;
    }
  }
  if (may_fuse && !call.starts) {
    if (mask) call.bias = BiasOf(*mask, query, key);
    choose();
  }
  if (!IsFused(choice)) {
    return std::get<0>(at::_scaled_dot_product_attention_math(
        query, key, value, mask, dropout, causal, /*dropout_mask=*/{}, scale, grouped));
  }
  const bool is_flash = choice == at::SDPBackend::flash_attention && !IsShort(call, width);
  return (is_flash ? Attend<Flash> : Attend<Cutlass>)(query, key, value, call);
}

namespace {

TORCH_LIBRARY_IMPL(aten, AutogradCUDA, library) {
  library.impl("scaled_dot_product_attention", ScaledDotProductAttention);
}
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("scaled_dot_product_attention", ScaledDotProductAttention);
}

}  // namespace
}  // namespace strata
