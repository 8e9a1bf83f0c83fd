// Tests that attention with kept keys and values gives the same for a few tokens at a time as for
// the whole text at once.
#include "engine/layers/kept_tokens.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/layers/layer.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/random/random.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::MaxDifference;

constexpr int64_t kRows = 2, kTokens = 9, kDim = 16;

std::unique_ptr<Layer> Build(const std::string& type, Value::List positional, Value::Map named) {
  const RandomScope scope(7);
  auto layer = BuildLayer(MakeLayer(type, positional, named, {}, ""), nullptr);
  layer->OnBound();
  return layer;
}

at::Tensor Text() {
  return at::arange(kRows * kTokens * kDim, at::kFloat).mul(0.71).sin().view({kRows, kTokens, -1});
}

/// The layer's output for the text if it gets so many tokens at a time.
at::Tensor InPieces(Layer& layer, const at::Tensor& text, const std::vector<int64_t>& pieces) {
  KeptTokens kept(kTokens);
  const TokenScope scope(&kept);
  std::vector<at::Tensor> outputs;
  for (const int64_t count : pieces) {
    const at::Tensor piece = text.narrow(1, kept.position(), count);
    outputs.push_back(layer.Forward({piece}, {.training = false})[0]);
    kept.Advance(count);
  }
  return at::cat(outputs, 1);
}

struct Kind {
  const char* name;
  const char* type;
  Value::List positional;
  Value::Map named;
};

class KeptTokensTest : public ::testing::TestWithParam<Kind> {};

TEST_P(KeptTokensTest, GiveWhatTheWholeTextGives) {
  const at::NoGradGuard no_grad;
  const auto layer = Build(GetParam().type, GetParam().positional, GetParam().named);
  const at::Tensor whole = layer->Forward({Text()}, {.training = false})[0];
  const std::vector<std::vector<int64_t>> all = {
      {kTokens}, {4, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {3, 4, 2}};
  for (const std::vector<int64_t>& pieces : all) {
    EXPECT_LT(MaxDifference(InPieces(*layer, Text(), pieces), whole), 2e-6) << pieces.size();
  }
  // Without the kept tokens the outputs differ.
  EXPECT_GT(MaxDifference(layer->Forward({Text().narrow(1, 4, 5)}, {.training = false})[0],
                          whole.narrow(1, 4, 5)),
            1e-3);
}

INSTANTIATE_TEST_SUITE_P(
    All, KeptTokensTest,
    ::testing::Values(Kind{"multihead",
                           "MultiheadAttention",
                           {kDim, 4},
                           {{"causal", true}, {"batch_first", true}}},
                      Kind{"more_keys",
                           "MultiheadAttention",
                           {kDim, 4},
                           {{"causal", true},
                            {"batch_first", true},
                            {"add_bias_kv", true},
                            {"add_zero_attn", true}}},
                      Kind{"encoder",
                           "TransformerEncoderLayer",
                           {kDim, 4},
                           {{"causal", true}, {"batch_first", true}, {"dim_feedforward", 32}}},
                      Kind{"decoder",
                           "TransformerDecoderLayer",
                           {kDim, 4},
                           {{"causal", true}, {"batch_first", true}, {"dim_feedforward", 32}}},
                      Kind{"rotary", "GroupedQueryAttention", {kDim, 4}, {}},
                      Kind{"grouped", "GroupedQueryAttention", {kDim, 4}, {{"num_kv_heads", 2}}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(TokenScopeTest, RefuseALayerThatRunsTwice) {
  const at::NoGradGuard no_grad;
  KeptTokens kept(kTokens);
  const TokenScope scope(&kept);
  const at::Tensor x = at::zeros({1, 2, 3, 4});
  const int layer = 0;
  WithKept(&layer, x, x);
  EXPECT_EQ(kept.bytes(), 2 * 2 * kTokens * 4 * 4);
  EXPECT_THROW(WithKept(&layer, x, x), ConfigError);
  kept.Advance(3);
  EXPECT_EQ(WithKept(&layer, x, x).first.size(2), 6);
  kept.Advance(3);
  const at::Tensor many = at::zeros({1, 2, 4, 4});
  EXPECT_THROW(WithKept(&layer, many, many), ConfigError) << "10 tokens of 9";
}

TEST(TokenScopeTest, PositionsAreThoseOfTheInnermostScope) {
  EXPECT_EQ(TokenPosition(), 0);
  KeptTokens kept(kTokens);
  kept.Advance(4);
  const TokenScope scope(&kept);
  EXPECT_EQ(TokenPosition(), 4);
  const TokenScope none(nullptr);
  EXPECT_EQ(TokenPosition(), 0);
}

}  // namespace
}  // namespace strata
