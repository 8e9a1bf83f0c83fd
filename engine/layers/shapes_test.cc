// Tests the shape rules at their limits. For each layer there are inputs that it takes, with the
// output, and inputs that it refuses, with the message. layer_types_golden_test.cc has thousands of
// PyTorch's shapes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>

#include "engine/base/text.h"
#include "engine/layers/testing_spec.h"

namespace strata {
namespace {

using Shape = std::vector<int64_t>;

TensorSpec Floats(Shape shape) { return {std::move(shape), DType::kFloat32}; }
TensorSpec Of(DType dtype, Shape shape) { return {std::move(shape), dtype}; }

std::string Outcome(const LayerSpec& layer, const TensorSpecs& inputs) {
  try {
    return ToString(InferLayer(layer, inputs, nullptr));
  } catch (const ShapeError& error) {
    return error.what();
  }
}

struct Case {
  TensorSpecs inputs;
  std::string outcome;
};

void Expect(const LayerSpec& layer, const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    EXPECT_EQ(Outcome(layer, c.inputs), c.outcome) << layer.ToString() << ToString(c.inputs);
  }
}

TEST(Shapes, Linear) {
  Expect(Layer("Linear", {4, 2}),
         {{{Floats({4})}, "float32 (2,)"},
          {{Floats({0, 4})}, "float32 (0, 2)"},
          {{Floats({})}, "expects last dim 4, got ()"},
          {{Floats({4, 3})}, "expects last dim 4, got (4, 3)"},
          {{Of(DType::kFloat64, {3, 4})}, "expects float32, got float64 (3, 4)"},
          {{Of(DType::kBFloat16, {3, 4})}, "expects float32, got bfloat16 (3, 4)"},
          {{}, "expects one tensor, got no tensor"},
          {{Floats({3, 4}), Floats({3, 4})},
           "expects one tensor, got float32 (3, 4) and float32 (3, 4)"}});
}

TEST(Shapes, Embedding) {
  Expect(Layer("Embedding", {10, 4}),
         {{{Of(DType::kInt64, {3})}, "float32 (3, 4)"},
          {{Of(DType::kInt64, {})}, "float32 (4,)"},
          {{Of(DType::kInt64, {0, 5})}, "float32 (0, 5, 4)"},
          {{Of(DType::kInt16, {3})}, "expects int64 or int32 indices, got int16 (3,)"},
          {{Of(DType::kUInt8, {3})}, "expects int64 or int32 indices, got uint8 (3,)"},
          {{Of(DType::kBool, {3})}, "expects int64 or int32 indices, got bool (3,)"},
          {{Floats({3})}, "expects int64 or int32 indices, got float32 (3,)"}});
}

TEST(Shapes, NormsOverTheLastDims) {
  for (const char* type : {"LayerNorm", "RMSNorm"}) {
    Expect(Layer(type, {Ints({3, 4})}),
           {{{Floats({3, 4})}, "float32 (3, 4)"},
            {{Floats({0, 3, 4})}, "float32 (0, 3, 4)"},
            {{Floats({4})}, "expects the last dims to be (3, 4), got (4,)"},
            {{Floats({})}, "expects the last dims to be (3, 4), got ()"},
            {{Floats({3, 4, 1})}, "expects the last dims to be (3, 4), got (3, 4, 1)"},
            {{Floats({2, 4, 3})}, "expects the last dims to be (3, 4), got (2, 4, 3)"},
            {{Of(DType::kFloat64, {3, 4})}, "expects float32, got float64 (3, 4)"}});
    Expect(Layer(type, {4}, {{"elementwise_affine", false}}),
           {{{Of(DType::kFloat64, {3, 4})}, "float64 (3, 4)"},
            {{Of(DType::kInt64, {3, 4})}, "expects floating numbers, got int64 (3, 4)"}});
  }
}

TEST(Shapes, NormsOfChannels) {
  Expect(Layer("BatchNorm2d", {3}),
         {{{Floats({2, 3, 5, 6})}, "float32 (2, 3, 5, 6)"},
          {{Floats({2, 3})}, "expects (batch, 3, height, width), got (2, 3)"},
          {{Floats({2, 3, 5})}, "expects (batch, 3, height, width), got (2, 3, 5)"},
          {{Floats({3, 2, 5, 6})}, "expects (batch, 3, height, width), got (3, 2, 5, 6)"},
          {{Of(DType::kFloat64, {2, 3, 5, 6})}, "expects float32, got float64 (2, 3, 5, 6)"}});
  Expect(Layer("GroupNorm", {2, 4}),
         {{{Floats({2, 4})}, "float32 (2, 4)"},
          {{Floats({4})}, "expects (batch, 4, ...), got (4,)"},
          {{Floats({4, 2})}, "expects (batch, 4, ...), got (4, 2)"},
          {{Of(DType::kInt32, {2, 4})}, "expects float32, got int32 (2, 4)"}});
  Expect(Layer("GroupNorm", {4, 4}),
         {{{Floats({2, 4})}, "float32 (2, 4)"},
          {{Floats({1, 4})},
           "expects more than one element in a group, which else is its own mean, got (1, 4)"}});
  Expect(Layer("BatchNorm2d", {3}, {{"affine", false}}),
         {{{Of(DType::kFloat64, {2, 3, 5, 6})}, "float64 (2, 3, 5, 6)"},
          {{Of(DType::kUInt8, {2, 3, 5, 6})}, "expects floating numbers, got uint8 (2, 3, 5, 6)"}});
}

TEST(Shapes, ActivationsKeepWhatTheyGet) {
  for (const char* type :
       {"ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "LeakyReLU", "Dropout", "Softmax", "Softsign"}) {
    Expect(Layer(type), {{{Floats({2, 3})}, "float32 (2, 3)"},
                         {{Floats({0})}, "float32 (0,)"},
                         {{Of(DType::kFloat16, {1})}, "float16 (1,)"},
                         {{Of(DType::kInt64, {2})}, "expects floating numbers, got int64 (2,)"},
                         {{Of(DType::kBool, {2})}, "expects floating numbers, got bool (2,)"}});
  }
  for (DType dtype : {DType::kFloat32, DType::kInt64, DType::kBool}) {
    Expect(Layer("Identity"), {{{Of(dtype, {})}, Of(dtype, {}).ToString()}});
  }
}

TEST(Shapes, SoftmaxNeedsItsDim) {
  for (int64_t dim : {-4, 3, 100}) {
    Expect(Layer("Softmax", {dim}),
           {{{Floats({2, 3, 4})},
             Str("expects an input that has dim ", dim, " (dim), got (2, 3, 4)")}});
  }
  Expect(Layer("Softmax", {0}), {{{Floats({})}, "expects an input that has dim 0 (dim), got ()"}});
}

TEST(Shapes, Flatten) {
  Expect(Layer("Flatten"),
         {{{Floats({2, 3, 4})}, "float32 (2, 12)"},
          {{Floats({0, 3, 4})}, "float32 (0, 12)"},
          {{Floats({2})}, "expects an input that has dim 1 (start_dim), got (2,)"},
          {{Floats({})}, "expects an input that has dim 1 (start_dim), got ()"}});
  Expect(Layer("Flatten", {0}),
         {{{Floats({2, 3, 4})}, "float32 (24,)"}, {{Floats({5})}, "float32 (5,)"}});
  Expect(Layer("Flatten", {-2, -1}), {{{Floats({2, 3, 4})}, "float32 (2, 12)"}});
  Expect(Layer("Flatten", {1, 1}), {{{Floats({2, 3, 4})}, "float32 (2, 3, 4)"}});
  Expect(Layer("Flatten", {2, 1}),
         {{{Floats({2, 3, 4})}, "expects start_dim 2 to come before end_dim 1, got (2, 3, 4)"}});
  Expect(Layer("Flatten", {0, 3}),
         {{{Floats({2, 3, 4})}, "expects an input that has dim 3 (end_dim), got (2, 3, 4)"}});
}

TEST(Shapes, Unflatten) {
  Expect(Layer("Unflatten", {1, Ints({3, 4})}),
         {{{Floats({2, 12})}, "float32 (2, 3, 4)"},
          {{Floats({2, 13})}, "expects dim 1 to split into (3, 4), got (2, 13)"},
          {{Floats({12})}, "expects an input that has dim 1 (dim), got (12,)"}});
  Expect(Layer("Unflatten", {-1, Ints({-1, 4})}),
         {{{Floats({2, 12})}, "float32 (2, 3, 4)"},
          {{Floats({2, 0})}, "float32 (2, 0, 4)"},
          {{Floats({2, 6})}, "expects dim 1 to split into (-1, 4), got (2, 6)"}});
  Expect(Layer("Unflatten", {0, Ints({-1})}), {{{Floats({6, 2})}, "float32 (6, 2)"}});
  Expect(Layer("Unflatten", {0, Ints({1 << 30, 1 << 30, 1 << 30, -1})}),
         {{{Floats({6})},
           "expects dim 0 to split into (1073741824, 1073741824, 1073741824, -1), got (6,)"}});
}

TEST(Shapes, Attention) {
  const std::string one_batch =
      "expects query, key and value of one batch, keys as long as values, got ";
  const TensorSpec query = Floats({5, 2, 8}), longer = Floats({7, 2, 8});
  Expect(
      Layer("MultiheadAttention", {8, 2}),
      {{{query}, "float32 (5, 2, 8)"},
       {{query, longer, longer}, "float32 (5, 2, 8)"},
       {{Floats({0, 2, 8})}, "float32 (0, 2, 8)"},
       {{query, longer, query},
        one_batch + "float32 (5, 2, 8) and float32 (7, 2, 8) and float32 (5, 2, 8)"},
       {{query, Floats({5, 3, 8}), Floats({5, 3, 8})},
        one_batch + "float32 (5, 2, 8) and float32 (5, 3, 8) and float32 (5, 3, 8)"},
       {{query, longer},
        "expects one tensor, or query, key and value, and perhaps masks, got float32 (5, 2, 8) "
        "and float32 (7, 2, 8)"},
       {{}, "expects one tensor, or query, key and value, and perhaps masks, got no tensor"},
       {{query, Of(DType::kBool, {2, 5})}, "float32 (5, 2, 8)"},
       {{query, Of(DType::kBool, {5, 2})}, "expects key_padding_mask bool (2, 5), got bool (5, 2)"},
       {{query, longer, longer, Floats({2, 7}), Of(DType::kBool, {5, 7})}, "float32 (5, 2, 8)"},
       {{query, longer, longer, Floats({2, 7}), Floats({4, 5, 7})}, "float32 (5, 2, 8)"},
       {{query, longer, longer, Floats({2, 7}), Floats({2, 5, 7})},
        "expects attn_mask bool (5, 7) or (4, 5, 7), got float32 (2, 5, 7)"},
       {{Floats({5, 8})}, "expects (sequence, batch, 8), got (5, 8)"},
       {{Floats({5, 2, 4})}, "expects (sequence, batch, 8), got (5, 2, 4)"},
       {{Of(DType::kFloat64, {5, 2, 8})}, "expects float32, got float64 (5, 2, 8)"}});
}

TEST(Shapes, AttentionWithTheBatchFirst) {
  const TensorSpec query = Floats({2, 5, 8}), longer = Floats({2, 7, 8});
  Expect(Layer("MultiheadAttention", {8, 2}, {{"batch_first", true}}),
         {{{query, longer, longer}, "float32 (2, 5, 8)"},
          {{Floats({5, 8})}, "expects (batch, sequence, 8), got (5, 8)"},
          {{query, Floats({3, 5, 8}), Floats({3, 5, 8})},
           "expects query, key and value of one batch, keys as long as values, got float32 (2, 5, "
           "8) and float32 (3, 5, 8) and float32 (3, 5, 8)"}});
}

TEST(Shapes, AttentionOfOtherWidths) {
  const LayerSpec attention = Layer("MultiheadAttention", {8, 2}, {{"kdim", 3}, {"vdim", 6}});
  Expect(attention,
         {{{Floats({5, 2, 8}), Floats({7, 2, 3}), Floats({7, 2, 6})}, "float32 (5, 2, 8)"},
          {{Floats({5, 2, 8})}, "expects (sequence, batch, 3), got (5, 2, 8)"},
          {{Floats({5, 2, 8}), Floats({7, 2, 3}), Floats({7, 2, 3})},
           "expects (sequence, batch, 6), got (7, 2, 3)"}});
}

TEST(Shapes, Transformers) {
  for (const char* type : {"TransformerEncoderLayer", "TransformerDecoderLayer"}) {
    Expect(Layer(type, {8, 2}),
           {{{Floats({5, 2, 8})}, "float32 (5, 2, 8)"},
            {{Floats({2, 8})}, "expects (sequence, batch, 8), got (2, 8)"},
            {{Floats({5, 2, 9})}, "expects (sequence, batch, 8), got (5, 2, 9)"},
            {{Of(DType::kInt64, {5, 2, 8})}, "expects float32, got int64 (5, 2, 8)"}});
    Expect(Layer(type, {8, 2}, {{"batch_first", true}}),
           {{{Floats({5, 2, 9})}, "expects (batch, sequence, 8), got (5, 2, 9)"}});
  }
  Expect(Layer("TransformerDecoderLayer", {8, 2}, {{"batch_first", true}}),
         {{{Floats({2, 5, 8}), Floats({2, 7, 8})}, "float32 (2, 5, 8)"},
          {{Floats({2, 5, 8}), Floats({3, 5, 8})},
           "expects target and memory of one batch, got float32 (2, 5, 8) and float32 (3, 5, 8)"},
          {{Floats({2, 5, 8}), Floats({2, 5, 4})}, "expects (batch, sequence, 8), got (2, 5, 4)"},
          {TensorSpecs(3, Floats({2, 5, 8})),
           "expects tgt_key_padding_mask bool (2, 5), got float32 (2, 5, 8)"},
          {{}, "expects one tensor, or target and memory, and perhaps masks, got no tensor"}});
}

TEST(Shapes, TransformersWithMasks) {
  const TensorSpec x = Floats({2, 5, 8}), memory = Floats({2, 7, 8});
  const auto hidden = [](Shape shape) { return Of(DType::kBool, std::move(shape)); };
  Expect(Layer("TransformerEncoderLayer", {8, 2}, {{"batch_first", true}}),
         {{{x, hidden({2, 5})}, "float32 (2, 5, 8)"},
          {{x, hidden({2, 5}), Floats({5, 5})}, "float32 (2, 5, 8)"},
          {{x, Of(DType::kInt64, {2, 5})},
           "expects src_key_padding_mask bool (2, 5), got int64 (2, 5)"},
          {{x, hidden({2, 5}), hidden({5, 4})},
           "expects src_mask bool (5, 5) or (4, 5, 5), got bool (5, 4)"},
          {TensorSpecs(4, x),
           "expects one tensor, and perhaps masks, got float32 (2, 5, 8) and float32 (2, 5, 8) and "
           "float32 (2, 5, 8) and float32 (2, 5, 8)"}});
  Expect(Layer("TransformerDecoderLayer", {8, 2}, {{"batch_first", true}}),
         {{{x, memory, hidden({2, 5}), hidden({2, 7}), hidden({5, 5}), hidden({5, 7})},
           "float32 (2, 5, 8)"},
          {{x, memory, hidden({2, 5}), hidden({2, 5})},
           "expects memory_key_padding_mask bool (2, 7), got bool (2, 5)"},
          {{x, memory, hidden({2, 5}), hidden({2, 7}), hidden({5, 5}), hidden({7, 5})},
           "expects memory_mask bool (5, 7) or (4, 5, 7), got bool (7, 5)"}});
}

TEST(Shapes, WholeTransformers) {
  const TensorSpec source = Floats({2, 7, 8}), target = Floats({2, 5, 8});
  const auto hidden = [](Shape shape) { return Of(DType::kBool, std::move(shape)); };
  const LayerSpec spec = Layer("Transformer", {8, 2, 2, 1, 12}, {{"batch_first", true}});
  Expect(spec,
         {{{source, target}, "float32 (2, 5, 8)"},
          {{source, target, hidden({2, 7}), hidden({2, 5}), hidden({2, 7}), hidden({7, 7}),
            hidden({5, 5}), hidden({5, 7})},
           "float32 (2, 5, 8)"},
          {{source, target, hidden({2, 5})},
           "its layer 0 TransformerEncoderLayer(8, 2, dim_feedforward=12, batch_first=true) "
           "expects src_key_padding_mask bool (2, 7), got bool (2, 5)"},
          {{source}, "expects a source and a target, and perhaps masks, got float32 (2, 7, 8)"}});
  const std::vector<ParameterSpec> parameters = ParametersOf(spec);
  EXPECT_EQ(parameters.front().name, "encoder.layers.0.self_attn.in_proj_weight");
  EXPECT_EQ(parameters.back().name, "decoder.norm.bias");
  EXPECT_EQ(spec.ToString(),
            "Transformer(d_model=8, nhead=2, num_encoder_layers=2, num_decoder_layers=1, "
            "dim_feedforward=12, batch_first=true)");
}

TEST(Shapes, WrongTransformersAreRefusedAtTheirPlace) {
  const auto error = [](const Value::List& arguments, const Value::Map& named = {}) {
    return ErrorOf([&] { MakeLayer("Transformer", arguments, named, {}, "net.lua:4"); });
  };
  EXPECT_EQ(error({10, 3}),
            "net.lua:4: Transformer(d_model=10, nhead=3): d_model 10 is not divisible by nhead 3");
  EXPECT_EQ(error({1 << 30, 1}),
            "net.lua:4: Transformer(d_model=1073741824, nhead=1): "
            "TransformerEncoderLayer(1073741824, 1): "
            "self_attn.in_proj_weight would be (3221225472, 1073741824), more than any machine "
            "holds");
  EXPECT_THAT(error({8, 2}, {{"custom_decoder", 1}}),
              testing::HasSubstr("TransformerEncoder and TransformerDecoder"));
}

TEST(Shapes, NoStackHasMoreLayersThanCouldBeMeant) {
  const LayerSpec encoder = Layer("TransformerEncoderLayer", {8, 2});
  const int many = 10'001;
  for (const auto& make : std::vector<std::function<void()>>{
           [&] {
             MakeLayer("TransformerEncoder", {}, {{"num_layers", many}}, {encoder}, "");
           },
           [&] {
             Layer("Transformer", {8, 2, 1, many});
           },
           [&] {
             Layer("LSTM", {8, 2, many});
           }}) {
    EXPECT_THAT(ErrorOf(make), testing::HasSubstr("at least 1, at most 10000"));
  }
}

TEST(Shapes, Stacks) {
  const LayerSpec layer = Layer("TransformerEncoderLayer", {8, 2}, {{"batch_first", true}});
  const auto stack = [](std::vector<LayerSpec> layers) {
    return MakeLayer("TransformerEncoder", {}, {{"num_layers", 3}}, std::move(layers), "");
  };
  const TensorSpec x = Floats({2, 5, 8});
  Expect(stack({layer, Layer("LayerNorm", {8})}),
         {{{x, Of(DType::kBool, {2, 5})}, "float32 (2, 5, 8)"},
          {{x, Of(DType::kBool, {2, 4})},
           "its layer 0 TransformerEncoderLayer(8, 2, batch_first=true) expects "
           "src_key_padding_mask bool (2, 5), got bool (2, 4)"}});
  EXPECT_EQ(CountParameters(stack({layer})), 3 * CountParameters(layer));
  EXPECT_EQ(ParametersOf(stack({layer, Layer("LayerNorm", {8})})).back().name, "norm.bias");
  for (const std::vector<LayerSpec>& wrong :
       {std::vector{Layer("ReLU")}, std::vector{layer, layer, layer}}) {
    EXPECT_THAT(ErrorOf([&] { stack(wrong); }),
                testing::HasSubstr("expects a TransformerEncoderLayer, and perhaps a norm"));
  }
}

TEST(Shapes, OfContainersInContainers) {
  const LayerSpec inner = Holding("Sequential", {Layer("Linear", {4, 4}), Layer("ReLU")});
  const LayerSpec block = Holding("Residual", {inner, Layer("Linear", {4, 4})});
  Expect(block, {{{Floats({2, 4})}, "float32 (2, 4)"},
                 {{Floats({2, 5})},
                  "its layer 0 Sequential(Linear(4, 4), ReLU()) its layer 0 Linear(4, 4) expects "
                  "last dim 4, got (2, 5)"}});
  EXPECT_EQ(CountParameters(block), 2 * (4 * 4 + 4));
}

// ---- laws ----

/// A random layer that keeps its input's shape, so that a list of them fits; the input is (batch,
/// 6, 8).
LayerSpec AnyKeepingLayer() {
  return *rc::gen::elementOf(std::vector<LayerSpec>{
      Layer("Linear", {8, 8}), Layer("ReLU"), Layer("LayerNorm", {8}),
      Layer("RMSNorm", {Ints({6, 8})}), Layer("Dropout"), Layer("GELU"), Layer("Softmax", {-1}),
      Layer("Identity"), Layer("Conv1d", {6, 6, 3}, {{"padding", "same"}}),
      Layer("GroupNorm", {2, 6}), Layer("TransformerEncoderLayer", {8, 2}, {{"batch_first", true}}),
      Layer("MultiheadAttention", {8, 2}, {{"batch_first", true}})});
}

RC_GTEST_PROP(ShapeLaws, ABlockDoesNotMatterToWhatItHolds, ()) {
  std::vector<LayerSpec> layers;
  const int count = *rc::gen::inRange(1, 6);
  for (int i = 0; i < count; ++i) layers.push_back(AnyKeepingLayer());
  const TensorSpecs input = {Floats({*rc::gen::inRange<int64_t>(0, 5), 6, 8})};
  RC_ASSERT(InferLayers(layers, input, nullptr).back() == input);
  for (const char* type : {"Sequential", "Residual"}) {
    const LayerSpec block = Holding(type, layers);
    RC_ASSERT(InferLayer(block, input, nullptr) == input);
    RC_ASSERT(InferLayer(Holding("Sequential", {block}), input, nullptr) == input);
  }
}

/// The inferred shapes for two sizes of micro-batches differ in dim 0 only.
RC_GTEST_PROP(ShapeLaws, TheBatchGoesThrough, ()) {
  const std::vector<LayerSpec> layers = {Layer("Conv2d", {1, 4, 3}, {{"padding", 1}}),
                                         Layer("BatchNorm2d", {4}),
                                         Layer("ReLU"),
                                         Layer("MaxPool2d", {2}),
                                         Layer("AdaptiveAvgPool2d", {2}),
                                         Layer("Flatten"),
                                         Layer("Linear", {16, 12}),
                                         Layer("Unflatten", {1, Ints({3, -1})})};
  const auto outputs = [&](int64_t batch) {
    return InferLayers(layers, {Floats({batch, 1, 8, 8})}, nullptr);
  };
  const auto batch = *rc::gen::inRange<int64_t>(1, 10000);
  const auto one = outputs(1), many = outputs(batch);
  for (size_t i = 0; i < layers.size(); ++i) {
    TensorSpec expected = one[i][0];
    expected.shape[0] = batch;
    RC_ASSERT(many[i] == TensorSpecs{expected});
    RC_ASSERT(many[i][0].bytes() == batch * one[i][0].bytes());
  }
}

}  // namespace
}  // namespace strata
