// Tests that layers treat each document of a packed row as a text of its own.
#include "engine/layers/documents.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/testing.h"
#include "engine/layers/kept_tokens.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
using testing::Normal;
using testing::SameBits;

constexpr int64_t kTokens = 40, kDim = 32, kHeads = 4;
// The lengths of the documents of two rows.
using Lengths = std::vector<std::vector<int64_t>>;
const Lengths kLengths = {{7, 20, 1, 12}, {40}};

at::Tensor PlacesOf(const Lengths& lengths) {
  std::vector<at::Tensor> rows;
  for (const std::vector<int64_t>& row : lengths) {
    std::vector<at::Tensor> places;
    for (const int64_t length : row) places.push_back(at::arange(length));
    rows.push_back(at::cat(places));
  }
  return at::stack(rows);
}

struct Kind {
  const char* name;
  const char* type;
  Value::List positional;
  Value::Map named;
  bool batch_first = true;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

/// Output and gradient of the input (rows, tokens, ...), for an output gradient that depends on the
/// token only through its own values.
struct Outcome {
  at::Tensor output, gradient;
};

class DocumentsTest : public ::testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Layer> Build() const {
    const RandomScope scope(7);
    const Kind& kind = GetParam();
    return BuildLayer(MakeLayer(kind.type, kind.positional, kind.named, {}, ""), nullptr);
  }
  /// `x` and the gradient `dy` of the output are (rows, tokens, features).
  Outcome Run(Layer& layer, at::Tensor x, const at::Tensor& dy, const Lengths& lengths) const {
    const Documents documents(PlacesOf(lengths));
    const DocumentScope scope(&documents);
    const RandomScope random(11);
    x = x.detach().clone().requires_grad_();
    const auto turned = [&](const at::Tensor& t) {
      if (std::string(GetParam().type) == "RotaryEmbedding") {
        return t.unflatten(2, {kHeads, -1}).transpose(1, 2);
      }
      return GetParam().batch_first ? t : t.transpose(0, 1);
    };
    const at::Tensor y = layer.Forward({turned(x)}, testing::TrainingPass())[0];
    y.backward(turned(dy));
    at::Tensor output = y.detach();
    if (output.dim() == 4) output = output.transpose(1, 2).flatten(2);
    return {GetParam().batch_first ? output : output.transpose(0, 1), x.grad()};
  }
};

TEST_P(DocumentsTest, EachIsAloneAndNothingLeaks) {
  const auto layer = Build();
  testing::FlatBuffers flat(*layer);
  const at::Tensor x = Normal({2, kTokens, kDim}, 1), dy = Normal({2, kTokens, kDim}, 2);
  const Outcome packed = Run(*layer, x, dy, kLengths);
  int64_t begin = 0;
  for (const int64_t length : kLengths[0]) {
    const auto own = [&](const at::Tensor& t) {
      return t.narrow(0, 0, 1).narrow(1, begin, length);
    };
    // Alone: products of fewer rows may round differently.
    const Outcome alone = Run(*layer, own(x), own(dy), {{length}});
    EXPECT_LT(testing::MaxDifference(own(packed.output), alone.output), 2e-6) << length;
    EXPECT_LT(testing::MaxDifference(own(packed.gradient), alone.gradient), 2e-6) << length;
    // Alone at the beginning of such a row, and at its place among other documents.
    for (const int64_t place : {int64_t{0}, begin}) {
      at::Tensor other = Normal({2, kTokens, kDim}, 3), other_dy = Normal({2, kTokens, kDim}, 4);
      const auto at_place = [&](const at::Tensor& t) {
        return t.narrow(0, 0, 1).narrow(1, place, length);
      };
      at_place(other).copy_(own(x));
      at_place(other_dy).copy_(own(dy));
      const auto lengths =
          place == begin ? kLengths : Lengths{{length, kTokens - length}, {kTokens}};
      const Outcome changed = Run(*layer, other, other_dy, lengths);
      EXPECT_TRUE(SameBits(own(packed.output), at_place(changed.output))) << length;
      EXPECT_TRUE(SameBits(own(packed.gradient), at_place(changed.gradient))) << length;
    }
    begin += length;
  }
}

const Value::Map kOptions = {{"dropout", 0}, {"dim_feedforward", 48}};

Value::Map With(Value::Map more) {
  more.insert(more.end(), kOptions.begin(), kOptions.end());
  return more;
}

INSTANTIATE_TEST_SUITE_P(
    All, DocumentsTest,
    ::testing::Values(
        Kind{"attention", "MultiheadAttention", {kDim, kHeads}, {{"batch_first", true}}},
        Kind{"sequence_first", "MultiheadAttention", {kDim, kHeads}, {{"causal", true}}, false},
        Kind{"encoder", "TransformerEncoderLayer", {kDim, kHeads}, With({{"batch_first", true}})},
        Kind{"decoder",
             "TransformerDecoderLayer",
             {kDim, kHeads},
             With({{"batch_first", true}, {"causal", true}, {"norm_first", true}})},
        Kind{"grouped", "GroupedQueryAttention", {kDim, kHeads}, {{"num_kv_heads", 2}}},
        Kind{"seeing_all", "GroupedQueryAttention", {kDim, kHeads}, {{"causal", false}}},
        Kind{"rotary", "RotaryEmbedding", {kDim / kHeads}, {}}),
    [](const auto& info) { return info.param.name; });

/// Attention itself gives the bits of the document alone; in a whole layer, products of other
/// numbers of rows may round differently.
TEST(WithinDocumentsTest, HasTheBitsOfEachDocumentAlone) {
  const AttentionCall attend = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const std::optional<at::Tensor>& mask, bool causal) {
    return at::scaled_dot_product_attention(q, k, v, mask, 0, causal);
  };
  const Documents documents(PlacesOf(kLengths));
  for (const bool causal : {false, true}) {
    std::vector<at::Tensor> qkv;
    for (int i = 0; i < 3; ++i) {
      qkv.push_back(Normal({2, kTokens, kHeads, 8}, 5 + i).transpose(1, 2).requires_grad_());
    }
    const at::Tensor dy = Normal({2, kHeads, kTokens, 8}, 9);
    at::Tensor packed;
    {
      const DocumentScope scope(&documents);
      packed = WithinDocuments(qkv[0], qkv[1], qkv[2], std::nullopt, causal, attend);
      const auto masked =
          WithinDocuments(qkv[0], qkv[1], qkv[2], at::zeros({kTokens, kTokens}), causal, attend);
      EXPECT_LT(testing::MaxDifference(packed, masked), 2e-6) << "with a mask: one call";
    }
    packed.backward(dy);
    int64_t begin = 0;
    for (const int64_t length : kLengths[0]) {
      const auto own = [&](const at::Tensor& t) {
        return t.narrow(0, 0, 1).narrow(2, begin, length);
      };
      std::vector<at::Tensor> alone;
      for (const at::Tensor& t : qkv) alone.push_back(own(t).detach().clone().requires_grad_());
      const at::Tensor y = attend(alone[0], alone[1], alone[2], std::nullopt, causal);
      y.backward(own(dy));
      EXPECT_TRUE(SameBits(own(packed), y)) << length;
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(SameBits(own(qkv[i].grad()), alone[i].grad())) << length << ", " << i;
      }
      begin += length;
    }
  }
}

TEST(WithinDocumentsTest, RefusesOtherSequences) {
  const Documents documents(PlacesOf(kLengths));
  const DocumentScope scope(&documents);
  const auto build = [](const char* type, Value::List positional, Value::Map named) {
    return BuildLayer(MakeLayer(type, positional, named, {}, ""), nullptr);
  };
  const RandomScope random(1);
  const auto error = [&](Layer& layer, const Tensors& inputs) {
    return ErrorOf([&] { layer.Forward(inputs, {.training = false}); });
  };
  const at::Tensor x = Normal({2, kTokens, kDim}, 1);
  const auto decoder = build("TransformerDecoderLayer", {kDim, kHeads}, {{"batch_first", true}});
  EXPECT_THAT(
      error(*decoder, {x, x.narrow(1, 0, 9)}),
      HasSubstr("attention within documents expects keys of the 2 packed rows of 40 tokens, "
                "(N, heads, T, features); got (2, 4, 9, 8)"));
  const auto rotary = build("RotaryEmbedding", {kDim}, {});
  EXPECT_THAT(error(*rotary, {x.narrow(1, 0, 9)}), HasSubstr("2 packed rows of 40 tokens"));
}

TEST(DocumentLengthsTest, RowsBeyondTheLimitsAreRefused) {
  const auto check = [](DocumentLimits limits) {
    return ErrorOf([&] { Documents(PlacesOf(kLengths), limits).CheckLimits(); });
  };
  EXPECT_EQ(check({}), "no error");
  EXPECT_EQ(check({4, 40}), "no error");
  EXPECT_EQ(check({3, 40}),
            "row 0 has 4 documents, the longest of 20 tokens; the data of the job has at most 3 in "
            "a row, of at most 40 tokens");
  EXPECT_THAT(check({4, 39}), HasSubstr("row 1 has 1 document, the longest of 40 tokens"));
}

TEST(DocumentLengthsTest, KnowLengthsAndWhoSeesWhom) {
  const Documents documents(PlacesOf({{2, 1}, {3}}));
  EXPECT_EQ(documents.lengths(), (Lengths{{2, 1}, {3}}));
  const at::Tensor seen = at::tensor({1, 0, 0, 1, 1, 0, 0, 0, 1}).view({3, 3}).to(at::kBool);
  EXPECT_TRUE(documents.Mask(true)[0][0].equal(seen));
  EXPECT_TRUE(documents.Mask(false)[1][0].all().item<bool>());
  EXPECT_EQ(CurrentDocuments(), nullptr);
}

}  // namespace
}  // namespace strata
