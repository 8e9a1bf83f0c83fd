// Tests layers that the ranks of the model axis share against the same layers on one rank: initial
// values, outputs, gradients, dropout's numbers.
#include "engine/layers/split.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/axis/crossing.h"
#include "engine/layers/axis/testing_axis.h"
#include "engine/layers/layer.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::FlatBuffers;
using testing::MaxDifference;
using testing::Normal;
using testing::OnAxis;
using testing::SameBits;

LayerSpec Make(const std::string& type, Value::List positional, Value::Map named = {},
               std::vector<LayerSpec> children = {}) {
  return MakeLayer(type, positional, named, std::move(children), "");
}

LayerSpec Chain(std::vector<LayerSpec> layers) {
  return Make("Sequential", {}, {}, std::move(layers));
}

at::Tensor Tokens(at::IntArrayRef shape, int64_t vocabulary) {
  const RandomScope scope(7);
  return at::randint(vocabulary, shape, at::kLong);
}

// The results of a layer for two micro-batches

struct Seen {
  std::vector<std::string> names;
  Tensors initial, outputs, input_grads, grads;
};

/// Trains the layer on two micro-batches. In the result every tensor is whole: shares are joined
/// and partial gradients are summed.
Seen Train(const LayerSpec& spec, const Tensors& inputs, bool deferred,
           const std::shared_ptr<AxisComm>& axis) {
  std::unique_ptr<Layer> layer;
  {
    const RandomScope scope(11);
    layer = BuildLayer(spec, nullptr, axis);
  }
  Seen seen;
  const auto whole = [&](const Parameter& parameter, const at::Tensor& tensor) {
    return parameter.share ? JoinShares(tensor.detach(), *parameter.share, *axis)
                           : tensor.detach().clone();
  };
  for (const Parameter& p : layer->parameters()) {
    seen.names.push_back(p.name);
    seen.initial.push_back(whole(p, p.value));
  }
  const FlatBuffers flat(*layer);
  for (int m = 0; m < 2; ++m) {
    Tensors x;
    for (const at::Tensor& input : inputs) {
      x.push_back(input.is_floating_point() ? input.mul(1 + m).requires_grad_(true) : input);
    }
    const RandomScope scope(100 + m);
    Pass pass = testing::TrainingPass();
    pass.weight_gradients->set_deferred(deferred);
    const at::Tensor y = layer->Forward(x, pass).at(0);
    seen.outputs.push_back(y.detach());
    y.backward(Normal(y.sizes(), 1000 + m));
    if (deferred) pass.weight_gradients->Run();
    for (const at::Tensor& leaf : x) {
      if (leaf.requires_grad()) seen.input_grads.push_back(leaf.grad());
    }
  }
  for (const Parameter& p : layer->parameters()) {
    const at::Tensor grad = p.partial_grad ? axis->AllReduceSum(p.grad) : p.grad;
    seen.grads.push_back(whole(p, grad));
  }
  return seen;
}

void ExpectClose(const Tensors& a, const Tensors& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    const double scale = std::max(1.0, a[i].abs().max().item<double>());
    EXPECT_LE(MaxDifference(a[i], b[i]), 2e-6 * scale) << what << " " << i;
  }
}

struct SplitCase {
  std::string name;
  LayerSpec spec;
  Tensors inputs;
  friend void PrintTo(const SplitCase& c, std::ostream* out) { *out << c.name; }
};

class SplitLayerTest : public ::testing::TestWithParam<std::tuple<SplitCase, int>> {};

void ExpectWhole(const Seen& rank, const Seen& whole) {
  EXPECT_EQ(rank.names, whole.names);
  ASSERT_EQ(rank.initial.size(), whole.initial.size());
  for (size_t i = 0; i < whole.initial.size(); ++i) {
    EXPECT_TRUE(SameBits(rank.initial[i], whole.initial[i])) << whole.names[i];
  }
  ExpectClose(rank.outputs, whole.outputs, "output");
  ExpectClose(rank.input_grads, whole.input_grads, "input gradient");
  ExpectClose(rank.grads, whole.grads, "gradient");
}

/// Checks that tensors which every rank has whole have the same bits on both ranks.
void ExpectSame(const Seen& a, const Seen& b) {
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    EXPECT_TRUE(SameBits(a.outputs[i], b.outputs[i])) << i;
  }
  for (size_t i = 0; i < a.grads.size(); ++i) {
    EXPECT_TRUE(SameBits(a.grads[i], b.grads[i])) << a.names[i];
  }
}

TEST_P(SplitLayerTest, IsTheWholeLayer) {
  const auto& [split, ranks] = GetParam();
  const bool deferred = ranks == 4;  // actions I and W; two ranks use B
  const Seen whole = Train(split.spec, split.inputs, deferred, nullptr);
  const LayerSpec shared = LayOut(std::vector{split.spec}, false)[0];
  std::vector<Seen> seen(ranks);
  OnAxis(ranks, [&](std::shared_ptr<AxisComm> axis) {
    seen[axis->rank()] = Train(shared, split.inputs, deferred, axis);
  });
  for (const Seen& rank : seen) {
    ExpectWhole(rank, whole);
    ExpectSame(rank, seen[0]);
  }
}

LayerSpec Linear(int in, int out, const char* split, bool bias = true) {
  return Make("Linear", {in, out}, {{"split", split}, {"bias", bias}});
}

LayerSpec Transformer(const char* type, const char* split, Value::Map more = {}) {
  Value::Map named = {{"dim_feedforward", 24}, {"dropout", 0.2}, {"split", split}};
  named.insert(named.end(), more.begin(), more.end());
  return Make(type, {16, 4}, named);
}

std::vector<SplitCase> Cases() {
  const at::Tensor rows = Normal({6, 8}, 1);
  const at::Tensor sequences = Normal({4, 8, 16}, 2);  // 4 ranks divide both dim 0 and dim 1
  const at::Tensor memory = Normal({8, 8, 16}, 3), target = Normal({4, 8, 16}, 4);
  const char* encoder = "TransformerEncoderLayer";
  const char* decoder = "TransformerDecoderLayer";
  const auto norm = Make("LayerNorm", {16}, {{"split", "sequence"}});
  const auto head_first = Value::Map{
      {"batch_first", true}, {"norm_first", true}, {"activation", "gelu"}, {"causal", true}};
  const auto batch_first = Value::Map{{"batch_first", true}};
  at::Tensor padding = at::zeros({4, 8}, at::kBool);
  padding[1].narrow(0, 0, 2).fill_(true);  // on the left: if causal, two queries see no key
  return {
      {"column", Linear(8, 12, "column"), {rows}},
      {"column_without_bias", Linear(8, 12, "column", false), {rows}},
      {"row", Linear(8, 12, "row"), {rows}},
      {"row_without_bias", Linear(8, 12, "row", false), {rows}},
      {"pair",
       Chain({Linear(8, 12, "column"), Make("ReLU", {}, {{"inplace", true}}),
              Make("Dropout", {0.3}), Linear(12, 8, "row"), Make("Dropout", {0.3})}),
       {rows}},
      {"residual_pair",
       Chain({Make("Residual", {}, {},
                   {Make("LayerNorm", {8}), Linear(8, 12, "column"), Make("GELU", {}),
                    Linear(12, 8, "row")})}),
       {rows}},
      {"unpaired",
       Chain({Linear(8, 12, "column"), Make("Dropout", {0.3}), Linear(12, 8, "none")}),
       {rows}},
      {"vocabulary", Make("Embedding", {12, 6}, {{"split", "row"}}), {Tokens({5, 9}, 12)}},
      {"vocabulary_with_padding",
       Make("Embedding", {12, 6}, {{"split", "row"}, {"padding_idx", 7}}),
       {Tokens({5, 9}, 12)}},
      {"wide_vocabulary", Make("Embedding", {400, 6}, {{"split", "row"}}), {Tokens({5, 9}, 400)}},
      {"embedding_column", Make("Embedding", {12, 8}, {{"split", "column"}}), {Tokens({5, 9}, 12)}},
      {"embedding_pair",
       Chain({Make("Embedding", {12, 8}, {{"split", "column"}}), Linear(8, 6, "row")}),
       {Tokens({5, 9}, 12)}},
      {"attention", Make("MultiheadAttention", {16, 4}, {{"split", "heads"}}), {sequences}},
      {"attention_with_dropout",
       Make("MultiheadAttention", {16, 4},
            {{"split", "heads"}, {"dropout", 0.3}, {"causal", true}}),
       {sequences}},
      {"attention_of_three",
       Make("MultiheadAttention", {16, 4},
            {{"split", "heads"},
             {"kdim", 8},
             {"vdim", 6},
             {"bias", false},
             {"dropout", 0.2},
             {"batch_first", true}}),
       {sequences, Normal({4, 5, 8}, 5), Normal({4, 5, 6}, 6)}},
      {"attention_with_extra_keys",
       Make("MultiheadAttention", {16, 4},
            {{"split", "heads"},
             {"add_bias_kv", true},
             {"add_zero_attn", true},
             {"causal", true},
             {"dropout", 0.2}}),
       {sequences}},
      {"grouped_queries",
       Make("GroupedQueryAttention", {16, 8}, {{"num_kv_heads", 4}, {"split", "heads"}}),
       {sequences}},
      {"gated", Make("SwiGLU", {16, 24}, {{"split", "hidden"}}), {sequences}},
      {"attention_with_masks",
       Make("MultiheadAttention", {16, 4}, {{"split", "heads"}}),
       {sequences, sequences, sequences, Normal({8, 4}, 7), Normal({32, 4, 4}, 8)}},
      {"encoder_with_masks",
       Transformer(encoder, "heads"),
       {sequences, Normal({8, 4}, 7), Normal({4, 4}, 8)}},
      {"encoder_by_sequence_with_masks",
       Transformer(encoder, "sequence"),
       {sequences, Normal({8, 4}, 7), Normal({4, 4}, 8)}},
      {"encoder_of_left_padding", Transformer(encoder, "heads", head_first), {sequences, padding}},
      {"encoder_by_sequence_of_left_padding",
       Transformer(encoder, "sequence", head_first),
       {sequences, padding}},
      {"decoder_with_memory_by_sequence_of_left_padding",
       Transformer(decoder, "sequence", batch_first),
       {sequences, sequences, padding, padding}},
      {"encoder", Transformer(encoder, "heads"), {sequences}},
      {"encoder_causal", Transformer(encoder, "heads", head_first), {sequences}},
      {"encoder_without_bias", Transformer(encoder, "heads", {{"bias", false}}), {sequences}},
      {"encoder_unsplit", Transformer(encoder, "none"), {sequences}},
      {"decoder", Transformer(decoder, "heads"), {sequences}},
      {"decoder_with_memory", Transformer(decoder, "heads"), {target, memory}},
      {"encoder_by_sequence", Transformer(encoder, "sequence"), {sequences}},
      {"encoder_by_sequence_causal", Transformer(encoder, "sequence", head_first), {sequences}},
      {"decoder_by_sequence", Transformer(decoder, "sequence"), {sequences}},
      {"decoder_with_memory_by_sequence", Transformer(decoder, "sequence"), {target, memory}},
      {"transformer",
       Make("Transformer", {16, 4, 2, 1, 24, 0.2}),
       {memory, target, Normal({8, 8}, 7)}},
      {"transformer_unsplit",
       Make("Transformer", {16, 4, 2, 1, 24, 0.2}, {{"split", "none"}}),
       {memory, target, Normal({8, 8}, 7)}},
      {"norm_by_sequence", norm, {sequences}},
      {"chain_by_sequence",
       Chain({Transformer(encoder, "sequence", batch_first), Make("Dropout", {0.2}),
              Transformer(decoder, "sequence", batch_first), norm, Linear(16, 8, "none")}),
       {sequences}},
      {"chain_by_sequence_first",
       Chain({norm, Transformer(encoder, "sequence"), Make("Dropout", {0.2}), norm}),
       {sequences}},
  };
}

INSTANTIATE_TEST_SUITE_P(All, SplitLayerTest,
                         ::testing::Combine(::testing::ValuesIn(Cases()), ::testing::Values(2, 4)),
                         [](const auto& info) {
                           return Str(std::get<0>(info.param).name, "_", std::get<1>(info.param));
                         });

// Shares of parameters

TEST(ShareTest, BlocksAreSharedEach) {
  const at::Tensor whole = at::arange(12).view({12, 1});
  const Share share = {.dim = 0, .blocks = 3};
  EXPECT_TRUE(CopyShare(whole, share, 0, 2).flatten().equal(at::tensor({0, 1, 4, 5, 8, 9})));
  EXPECT_TRUE(CopyShare(whole, share, 1, 2).flatten().equal(at::tensor({2, 3, 6, 7, 10, 11})));
  OnAxis(4, [&](std::shared_ptr<AxisComm> axis) {
    const at::Tensor own = CopyShare(whole, share, axis->rank(), 4);
    EXPECT_TRUE(JoinShares(own, share, *axis).equal(whole));
  });
}

TEST(ShareTest, ParametersTellWhatTheyAre) {
  OnAxis(2, [](std::shared_ptr<AxisComm> axis) {
    const RandomScope scope(1);
    const auto heads = BuildLayer(Transformer("TransformerEncoderLayer", "heads"), nullptr, axis);
    EXPECT_EQ(heads->parameters()[0].share, (Share{0, 3}));
    EXPECT_EQ(heads->parameters()[0].value.sizes(), at::IntArrayRef({24, 16}));
    for (const Parameter& p : heads->parameters()) EXPECT_FALSE(p.partial_grad) << p.name;
    const auto parts =
        BuildLayer(Transformer("TransformerEncoderLayer", "sequence"), nullptr, axis);
    for (const Parameter& p : parts->parameters()) {
      EXPECT_EQ(p.partial_grad, !p.share.has_value()) << p.name;
    }
  });
}

TEST(ShareTest, FrozenParametersStayFrozen) {
  LayerSpec spec = Chain({Linear(4, 6, "column"), Linear(6, 4, "row")});
  spec.frozen = true;
  OnAxis(2, [&](std::shared_ptr<AxisComm> axis) {
    const auto layer = BuildLayer(spec, nullptr, axis);
    for (const Parameter& p : layer->parameters()) {
      EXPECT_TRUE(p.frozen && !p.value.requires_grad()) << p.name;
    }
  });
}

// Crossings

TEST(CrossingTest, GradientsGoTheOtherWay) {
  struct Row {
    Crossing how;
    std::vector<float> forward, backward;  // of rank 1, whose x is {3, 4} and dy {10, 20, ...}
  };
  // Rank 0 has x = {1, 2} and the same dy; both cross along dim 0.
  const std::vector<Row> table = {
      {Crossing::kNone, {3, 4}, {10, 20}},       {Crossing::kCopy, {3, 4}, {20, 40}},
      {Crossing::kReduce, {4, 6}, {10, 20}},     {Crossing::kGather, {1, 2, 3, 4}, {30, 40}},
      {Crossing::kScatter, {4}, {10, 10}},       {Crossing::kGatherSummed, {1, 2, 3, 4}, {60, 80}},
      {Crossing::kReduceScatter, {6}, {10, 10}},
  };
  for (const Row& row : table) {
    OnAxis(2, [&](std::shared_ptr<AxisComm> axis) {
      const at::Tensor x = at::tensor({1.0f, 2.0f}).add(2 * axis->rank()).requires_grad_(true);
      const at::Tensor y = Cross(x, row.how, axis, 0);
      y.backward(at::tensor({10.0f, 20.0f, 30.0f, 40.0f}).narrow(0, 0, y.size(0)));
      if (axis->rank() == 0) return;
      EXPECT_TRUE(y.equal(at::tensor(row.forward))) << static_cast<int>(row.how) << y;
      EXPECT_TRUE(x.grad().equal(at::tensor(row.backward))) << static_cast<int>(row.how);
    });
  }
}

TEST(CrossingTest, WithoutAnAxisNothingHappens) {
  const at::Tensor x = at::ones({3});
  EXPECT_TRUE(Cross(x, Crossing::kScatter, nullptr, 0).is_same(x));
}

TEST(CrossingTest, RanksMustDivideTheDim) {
  try {
    OnAxis(2, [](std::shared_ptr<AxisComm> axis) {
      Cross(at::ones({4, 3}), Crossing::kScatter, axis, -1);
    });
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "dim 1 of (4, 3) is not divisible by the 2 ranks of the model axis");
  }
}

// Vocabulary and classes

TEST(VocabularyTest, AnIndexThatNobodyHasIsAnErrorOnEveryRank) {
  for (const int64_t wrong : {-1, 12, 100}) {
    OnAxis(2, [&](std::shared_ptr<AxisComm> axis) {
      const auto layer = BuildLayer(Make("Embedding", {12, 4}, {{"split", "row"}}), nullptr, axis);
      EXPECT_THROW(layer->Forward({at::full({1}, wrong, at::kLong)}, Pass()), c10::Error) << wrong;
    });
  }
}

struct LossSeen {
  double sum = 0, weight = 0;
  Hits hits;
  at::Tensor grad, output;
};

LossSeen Compute(const LayerSpec& spec, const at::Tensor& logits, const at::Tensor& target,
                 const std::shared_ptr<AxisComm>& axis) {
  const auto loss = BuildLoss(spec, nullptr, axis);
  const at::Tensor leaf = logits.clone().requires_grad_(true);
  const at::Tensor part = Cross(leaf, Crossing::kScatter, axis, -1);
  const LossValue value = loss->Compute({part}, {target});
  value.sum.backward();
  const at::NoGradGuard no_grad;
  return {value.sum.item<double>(), value.weight, loss->CountHits({part}, {target}), leaf.grad(),
          loss->WholeOutput({part})[0]};
}

TEST(SharedLossTest, IsTheLossOfTheWholeOutput) {
  // The logits of `tokens` are so large that exp() would overflow without the maximum subtracted.
  const at::Tensor rows = Normal({6, 8}, 1), tokens = Normal({3, 5, 8}, 2).mul(100);
  at::Tensor some_ignored = Tokens({3, 5}, 8);
  some_ignored[1][2] = -100;
  const LayerSpec plain = Make("CrossEntropyLoss", {});
  struct Row {
    LayerSpec spec;
    at::Tensor logits, target;
  };
  const std::vector<Row> table = {
      {plain, rows, Tokens({6}, 8)},
      {plain, rows, Tokens({6}, 8).to(at::kInt)},
      {plain, tokens, some_ignored},
      {plain, tokens, Tokens({3, 8}, 5)},  // the classes are in dim 1
      {Make("CrossEntropyLoss", {}, {{"ignore_index", 3}}), rows, Tokens({6}, 8)},
      {Make("CrossEntropyLoss", {}, {{"reduction", "sum"}}), tokens, some_ignored},
  };
  for (size_t i = 0; i < table.size(); ++i) {
    const auto& [spec, logits, target] = table[i];
    LayerSpec shared = spec;
    shared.input_shard = -1;
    std::vector<double> sums(2);
    const LossSeen whole = Compute(spec, logits, target, nullptr);
    OnAxis(2, [&](std::shared_ptr<AxisComm> axis) {
      const LossSeen seen = Compute(shared, logits, target, axis);
      EXPECT_NEAR(seen.sum, whole.sum, 1e-6 * std::abs(whole.sum)) << i;
      EXPECT_EQ(seen.weight, whole.weight) << i;
      EXPECT_EQ(seen.hits.correct, whole.hits.correct) << i;
      EXPECT_EQ(seen.hits.counted, whole.hits.counted) << i;
      EXPECT_LE(MaxDifference(seen.grad, whole.grad), 1e-6) << i;
      EXPECT_TRUE(SameBits(seen.output, logits)) << i;
      sums[axis->rank()] = seen.sum;
    });
    EXPECT_EQ(sums[0], sums[1]) << i;
  }
}

TEST(SharedLossTest, ProbabilitiesAreComparedWhole) {
  const at::Tensor logits = Normal({6, 8}, 1), target = Normal({6, 8}, 3).softmax(1);
  LayerSpec spec = Make("CrossEntropyLoss", {});
  const double whole = BuildLoss(spec, nullptr)->Compute({logits}, {target}).sum.item<double>();
  spec.input_shard = -1;
  OnAxis(2, [&](std::shared_ptr<AxisComm> axis) {
    const at::Tensor part = Cross(logits, Crossing::kScatter, axis, -1);
    const LossValue value = BuildLoss(spec, nullptr, axis)->Compute({part}, {target});
    EXPECT_NEAR(value.sum.item<double>(), whole, 1e-6);
    EXPECT_EQ(value.weight, 6);
  });
}

TEST(SharedLossTest, ALabelThatNobodyHasIsAnErrorOnEveryRank) {
  LayerSpec spec = Make("CrossEntropyLoss", {});
  spec.input_shard = -1;
  for (const int64_t wrong : {-7, 8}) {
    OnAxis(2, [&](std::shared_ptr<AxisComm> axis) {
      const auto loss = BuildLoss(spec, nullptr, axis);
      EXPECT_THROW(loss->Compute({at::zeros({1, 4})}, {at::full({1}, wrong, at::kLong)}),
                   ConfigError)
          << wrong;
    });
  }
}

}  // namespace
}  // namespace strata
