// The way of packed rows through CUDA's attention, on the CPU: LibTorch has the kernels' operators
// for CUDA only, so here they are plain ones that compute each sequence by itself. cuda_test
// compares the real ones.
#include "engine/layers/cuda/cuda_attention.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "engine/layers/document_mask.h"
#include "engine/layers/documents.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::MaxDifference;
using testing::Normal;

std::vector<std::string> calls;  // of the operators
using Scale = std::optional<double>;

at::Tensor Plain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                 Scale scale) {
  const auto heads = [](const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); };
  const at::Tensor y = std::get<0>(at::_scaled_dot_product_attention_math(
      heads(q), heads(k), heads(v), {}, /*dropout_p=*/0, causal, {}, scale));
  return y.squeeze(0).transpose(0, 1);
}

/// The sequences of (tokens, H, D) that `starts` names, one by one. Empty ones are passed over.
std::vector<at::Tensor> Sequences(const at::Tensor& x, const at::Tensor& starts, int64_t longest) {
  EXPECT_EQ(starts.scalar_type(), at::kInt);
  EXPECT_TRUE(starts.is_contiguous());
  EXPECT_EQ(starts[0].item<int>(), 0);
  EXPECT_EQ(starts[-1].item<int>(), x.size(0));
  std::vector<at::Tensor> sequences;
  for (int64_t i = 0; i + 1 < starts.numel(); ++i) {
    const int64_t begin = starts[i].item<int>(), end = starts[i + 1].item<int>();
    EXPECT_LE(begin, end);
    EXPECT_LE(end - begin, longest) << "a kernel would leave out the rest";
    if (begin < end) sequences.push_back(x.slice(0, begin, end));
  }
  return sequences;
}

at::Tensor Forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const at::Tensor& starts, int64_t longest, bool causal, Scale scale) {
  const auto qs = Sequences(q, starts, longest), ks = Sequences(k, starts, longest);
  const auto vs = Sequences(v, starts, longest);
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < qs.size(); ++i)
    outputs.push_back(Plain(qs[i], ks[i], vs[i], causal, scale));
  return at::cat(outputs);
}

std::vector<at::Tensor> Backward(const at::Tensor& gradient, const at::Tensor& q,
                                 const at::Tensor& k, const at::Tensor& v, const at::Tensor& starts,
                                 int64_t longest, bool causal, Scale scale) {
  // A node's apply() excludes autograd, which computes the gradients here.
  const c10::impl::ForceDispatchKeyGuard as_outside(c10::default_included_set,
                                                    c10::default_excluded_set);
  const at::AutoGradMode records(true);
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& x : {q, k, v}) leaves.push_back(x.detach().clone().requires_grad_());
  Forward(leaves[0], leaves[1], leaves[2], starts, longest, causal, scale).backward(gradient);
  return {leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
}

using Optional = std::optional<at::Tensor>;
using OptionalInts = std::optional<c10::SymInt>;

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> FlashForward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional& starts,
    const Optional&, c10::SymInt longest, c10::SymInt, double, bool causal, bool, Scale scale,
    OptionalInts, OptionalInts, const Optional&, const Optional&) {
  calls.push_back("flash");
  const at::Tensor none = at::empty({0});
  return {Forward(q, k, v, *starts, longest.expect_int(), causal, scale), none, none, none, none};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> FlashBackward(
    const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor&, const at::Tensor&, const at::Tensor& starts, const at::Tensor&,
    c10::SymInt longest, c10::SymInt, double, bool causal, const at::Tensor&, const at::Tensor&,
    Scale scale, OptionalInts, OptionalInts) {
  calls.push_back("flash backward");
  const auto all = Backward(gradient, q, k, v, starts, longest.expect_int(), causal, scale);
  return {all[0], all[1], all[2]};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt> CutlassForward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional& bias,
    const Optional& starts, const Optional&, OptionalInts longest, OptionalInts, double,
    int64_t mask_type, bool, Scale scale, const Optional&, std::optional<int64_t>) {
  calls.push_back(bias ? "cutlass with a mask" : "cutlass");
  const at::Tensor none = at::empty({0});
  const at::Tensor y = Forward(q.squeeze(0), k.squeeze(0), v.squeeze(0), *starts,
                               longest->expect_int(), mask_type == 1, scale);
  return {y.unsqueeze(0), none, none, none, 0, 0};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> CutlassBackward(
    const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const Optional&, const at::Tensor&, const Optional& starts, const Optional&,
    c10::SymInt longest, c10::SymInt, const at::Tensor&, double, const at::Tensor&,
    const at::Tensor&, int64_t mask_type, bool, Scale scale, std::optional<int64_t> splits,
    std::optional<int64_t>, bool) {
  calls.push_back("cutlass backward");
  EXPECT_EQ(splits, 1);
  const auto all = Backward(gradient.squeeze(0), q.squeeze(0), k.squeeze(0), v.squeeze(0), *starts,
                            longest.expect_int(), mask_type == 1, scale);
  return {all[0].unsqueeze(0), all[1].unsqueeze(0), all[2].unsqueeze(0), at::Tensor()};
}

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("_flash_attention_forward", FlashForward);
  library.impl("_flash_attention_backward", FlashBackward);
  library.impl("_efficient_attention_forward", CutlassForward);
  library.impl("_efficient_attention_backward", CutlassBackward);
}

/// Places of two rows of 100 tokens: documents of 70, 1 and 29, and of 40 and 60.
at::Tensor Places() {
  std::vector<at::Tensor> documents;
  for (const int64_t tokens : {70, 1, 29, 40, 60}) documents.push_back(at::arange(tokens));
  return at::cat(documents).view({2, 100});
}

/// The output and the gradients of query, key and value.
std::vector<at::Tensor> Attended(const AttentionCall& attend, const std::vector<at::Tensor>& inputs,
                                 const std::optional<at::Tensor>& mask, bool causal) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& x : inputs) leaves.push_back(x.detach().clone().requires_grad_());
  std::vector<at::Tensor> all = {attend(leaves[0], leaves[1], leaves[2], mask, causal)};
  all[0].mul(all[0]).sum().backward();
  for (const at::Tensor& leaf : leaves) all.push_back(leaf.grad());
  return all;
}

std::vector<at::Tensor> Inputs(const at::Tensor& places, int64_t width) {
  const std::vector<int64_t> shape = {places.size(0), 3, places.size(1), width};
  return {Normal(shape, 1), Normal(shape, 2), Normal(shape, 3)};
}

const AttentionCall kOurs = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const std::optional<at::Tensor>& mask, bool causal) {
  return ScaledDotProductAttention(q, k, v, mask, /*dropout=*/0, causal, {}, /*grouped=*/false);
};

TEST(CudaAttention, DocumentsAreSequencesOfTheKernels) {
  const at::Tensor places = Places();
  for (const int64_t width : {16, 12}) {  // 12 is filled up to 16
    for (const bool causal : {false, true}) {
      for (const int64_t in_row : {3, 5}) {  // as many as there are in a row, and more
        const Documents documents(places, {in_row, 70});
        const auto inputs = Inputs(places, width);
        const DocumentScope scope(&documents);
        const auto one_by_one = Attended(
            [&](const auto&... x) {
              return WithinDocuments(x..., [](const auto& q, const auto& k, const auto& v,
                                              const auto& mask, bool is_causal) {
                return std::get<0>(
                    at::_scaled_dot_product_attention_math(q, k, v, mask, 0, is_causal));
              });
            },
            inputs, {}, causal);
        calls.clear();
        const auto together = Attended(kOurs, inputs, documents.Mask(causal), false);
        EXPECT_THAT(calls, ::testing::ElementsAre("flash", "flash backward"));
        for (size_t i = 0; i < together.size(); ++i) {
          EXPECT_LE(MaxDifference(together[i], one_by_one[i]), 1e-5) << i << causal << in_row;
        }
      }
    }
  }
}

TEST(CudaAttention, ShortDocumentsAreCutlasss) {
  const at::Tensor places = at::arange(100).remainder(25).view({2, 50});
  const Documents documents(places, {2, 25});
  const auto inputs = Inputs(places, 16);
  const auto flash = Attended(kOurs, inputs, Documents(places, {2, 65}).Mask(true), false);
  calls.clear();
  const auto cutlass = Attended(kOurs, inputs, documents.Mask(true), false);
  EXPECT_THAT(calls, ::testing::ElementsAre("cutlass", "cutlass backward"));
  for (size_t i = 0; i < flash.size(); ++i) EXPECT_TRUE(testing::SameBits(flash[i], cutlass[i]));
}

/// Kernels must not take documents from a mask that hides more, or whose limits nobody knows.
TEST(CudaAttention, OtherMasksAreNotOfDocuments) {
  const Documents known(Places(), {3, 70}), unknown(Places());
  EXPECT_TRUE(DocumentMaskOf(known.Mask(true))->causal);
  EXPECT_FALSE(DocumentMaskOf(known.Mask(false))->causal);
  EXPECT_FALSE(DocumentMaskOf(unknown.Mask(true)));
  EXPECT_FALSE(DocumentMaskOf(std::nullopt));
  const at::Tensor hides_more = at::ones({100, 100}, at::kBool).tril();
  EXPECT_FALSE(DocumentMaskOf(known.Mask(false).logical_and(hides_more)));
  EXPECT_FALSE(DocumentMaskOf(known.Mask(false).to(at::kFloat)));
  const DocumentScope scope(&known);
  const auto inputs = Inputs(Places(), 16);
  WithinDocuments(inputs[0], inputs[1], inputs[2], hides_more, /*causal=*/false,
                  [](const at::Tensor& q, const auto&, const auto&, const auto& mask, bool) {
                    EXPECT_FALSE(DocumentMaskOf(mask));
                    return q;
                  });
}

}  // namespace
}  // namespace strata
