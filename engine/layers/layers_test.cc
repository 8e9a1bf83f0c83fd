// Tests what layers promise beyond PyTorch's numbers: gradients straight into their buffers with
// autograd's bits, split backward passes, in-place work, containers, threads.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/layers/kernels/avx512.h"
#include "engine/layers/layer.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::FlatBuffers;
using testing::MaxDifference;
using testing::Normal;
using testing::SameBits;
using testing::TrainingPass;

LayerSpec Spec(const std::string& type, Value::Map args = {},
               std::vector<LayerSpec> children = {}) {
  return MakeLayer(type, {}, args, std::move(children), "");
}

LayerSpec LinearSpec(int in, int out, bool bias = true) {
  return Spec("Linear", {{"in_features", in}, {"out_features", out}, {"bias", bias}});
}

std::unique_ptr<Layer> Build(const LayerSpec& spec, uint64_t seed = 1) {
  RandomScope scope(seed);
  return BuildLayer(spec, nullptr);
}

at::Tensor RandomTokens(at::IntArrayRef shape, int64_t vocabulary, uint64_t seed) {
  RandomScope scope(seed);
  return at::randint(vocabulary, shape, at::kLong);
}

/// How the gradients of a few micro-batches are computed.
enum class How {
  kAutograd,  ///< ordinary autograd, accumulating into the same buffers
  kWhole,     ///< weight gradients straight into the buffers: action B
  kSplit,     ///< the same, deferred: actions I and W
};

struct Result {
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> input_grads;
  at::Tensor grads;
};

/// Trains a layer on a few micro-batches; input(i) is the input of micro-batch i.
template <class Input>
Result Train(const LayerSpec& spec, Input input, int micro_batches, How how) {
  const auto layer = Build(spec);
  FlatBuffers flat(*layer);
  Result result;
  for (int i = 0; i < micro_batches; ++i) {
    at::Tensor x = input(i);
    if (x.is_floating_point()) x.set_requires_grad(true);
    Pass pass;
    if (how != How::kAutograd) pass = TrainingPass();
    if (how == How::kSplit) pass.weight_gradients->set_deferred(true);
    const at::Tensor y = layer->Forward({x}, pass)[0];
    y.backward(Normal(y.sizes(), 1000 + i));
    if (how == How::kSplit) pass.weight_gradients->Run();
    result.outputs.push_back(y);
    if (x.requires_grad()) result.input_grads.push_back(x.grad());
  }
  result.grads = flat.grads;
  return result;
}

/// The largest difference of the gradients. Checks that outputs and input gradients have equal
/// bits.
double Difference(const Result& a, const Result& b) {
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    if (!SameBits(a.outputs[i], b.outputs[i])) return 1e30;
  }
  for (size_t i = 0; i < a.input_grads.size(); ++i) {
    if (!SameBits(a.input_grads[i], b.input_grads[i])) return 1e30;
  }
  return MaxDifference(a.grads, b.grads);
}

/// The largest difference of gradients, outputs and input gradients.
double LargestDifference(const Result& a, const Result& b) {
  double largest = MaxDifference(a.grads, b.grads);
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    largest = std::max(largest, MaxDifference(a.outputs[i], b.outputs[i]));
  }
  for (size_t i = 0; i < a.input_grads.size(); ++i) {
    largest = std::max(largest, MaxDifference(a.input_grads[i], b.input_grads[i]));
  }
  return largest;
}

int InRange(int low, int high) { return *rc::gen::inRange(low, high + 1); }

// Few rows are multiplied by the kernels of few_rows.h, which sum in another order, so the
// comparison has a tolerance.
RC_GTEST_PROP(Linear, AgreesWithAutograd, ()) {
  const int in = InRange(2, 40), out = InRange(1, 40), rows = InRange(1, 30);
  const LayerSpec spec = LinearSpec(in, out, *rc::gen::arbitrary<bool>());
  const bool tokens = *rc::gen::arbitrary<bool>();
  const auto input = [&](int i) {
    return tokens ? Normal({rows, 3, in}, i) : Normal({rows, in}, i);
  };
  const Result whole = Train(spec, input, 3, How::kWhole);
  RC_ASSERT(Difference(whole, Train(spec, input, 3, How::kSplit)) == 0);
  RC_ASSERT(LargestDifference(whole, Train(spec, input, 3, How::kAutograd)) <= 3e-5);
}

// Autograd adds a whole product to the gradient. So does MKL with AVX-512; with AVX2 MKL adds many
// rows in several parts.
TEST(Linear, HasAutogradsBitsWithManyRows) {
  for (const int rows : {17, 32, 100}) {
    const auto input = [&](int i) { return Normal({rows, 64}, i); };
    const Result whole = Train(LinearSpec(64, 48), input, 4, How::kWhole);
    const Result autograd = Train(LinearSpec(64, 48), input, 4, How::kAutograd);
    EXPECT_LE(Difference(whole, autograd), HasAvx512() ? 0 : 3e-5) << rows;
  }
}

// Otherwise a prediction would differ from the evaluation.
TEST(Linear, FrozenHasTheBitsOfOneThatLearns) {
  const auto learning = Build(LinearSpec(24, 9));
  FlatBuffers buffers(*learning);
  LayerSpec spec = LinearSpec(24, 9);
  spec.frozen = true;
  const auto frozen = Build(spec);
  for (size_t i = 0; i < 2; ++i) {
    frozen->parameters()[i].value.copy_(learning->parameters()[i].value.detach());
  }
  for (const int rows : {1, 5, 6}) {
    const auto run = [&](Layer& layer) {
      const at::Tensor x = Normal({rows, 3, 24}, 1).requires_grad_();
      const at::Tensor y = layer.Forward({x}, TrainingPass())[0];
      y.square().sum().backward();
      return std::pair(y.detach(), x.grad());
    };
    const auto [y, dx] = run(*learning);
    const auto [frozen_y, frozen_dx] = run(*frozen);
    EXPECT_TRUE(SameBits(y, frozen_y) && SameBits(dx, frozen_dx)) << rows;
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(SameBits(y, frozen->Forward({Normal({rows, 3, 24}, 1)}, Pass())[0])) << rows;
  }
}

TEST(Linear, FrozenGivesWhatTheNextLayerMayOverwrite) {
  LayerSpec spec = LinearSpec(6, 5);
  spec.frozen = true;
  const auto frozen = Build(spec);
  const at::Tensor learning = Normal({5}, 2).requires_grad_();
  for (const int rows : {2, 20}) {  // few_rows.h, and at::linear
    at::Tensor y = frozen->Forward({Normal({rows, 3, 6}, 1)}, TrainingPass())[0];
    y.add_(learning).sum().backward();
    EXPECT_TRUE(learning.grad().defined()) << rows;
  }
}

TEST(Linear, OfTokensMayBeOverwritten) {  // for 3 dims at::linear gives a view of its product
  const auto body = [](bool inplace) {
    return Spec("Sequential", {}, {LinearSpec(6, 5), Spec("ReLU", {{"inplace", inplace}})});
  };
  const auto input = [](int i) { return Normal({4, 3, 6}, i); };
  EXPECT_EQ(Difference(Train(body(true), input, 2, How::kWhole),
                       Train(body(false), input, 2, How::kWhole)),
            0);
}

RC_GTEST_PROP(Conv, HasAutogradsBits, ()) {
  const int groups = InRange(1, 2);
  const std::string type = *rc::gen::element<std::string>("Conv1d", "Conv2d", "ConvTranspose2d");
  const LayerSpec spec = Spec(type, {{"in_channels", groups * InRange(1, 4)},
                                     {"out_channels", groups * InRange(1, 4)},
                                     {"kernel_size", InRange(1, 3)},
                                     {"stride", InRange(1, 2)},
                                     {"padding", InRange(0, 2)},
                                     {"dilation", InRange(1, 2)},
                                     {"groups", groups},
                                     {"bias", *rc::gen::arbitrary<bool>()}});
  std::vector<int64_t> shape = {InRange(1, 5), spec.args["in_channels"].as_int(), InRange(5, 9)};
  if (type != "Conv1d") shape.push_back(InRange(5, 9));
  const auto input = [&](int i) { return Normal(shape, i); };
  const Result whole = Train(spec, input, 3, How::kWhole);
  RC_ASSERT(Difference(whole, Train(spec, input, 3, How::kSplit)) == 0);
  RC_ASSERT(Difference(whole, Train(spec, input, 3, How::kAutograd)) == 0);
}

// The weight gradient is computed from unfolded images for large weights and few output positions
// (PaysToUnfold()).
TEST(Conv, OfSmallPicturesAgreesWithAutograd) {
  for (const auto& [stride, padding, dilation] : {std::tuple(2, 1, 1), {1, 0, 2}}) {
    const LayerSpec spec = Spec("Conv2d", {{"in_channels", 256},
                                           {"out_channels", 512},
                                           {"kernel_size", 3},
                                           {"stride", stride},
                                           {"padding", padding},
                                           {"dilation", dilation}});
    const auto input = [](int i) { return Normal({2, 256, 7, 6}, i); };
    const Result whole = Train(spec, input, 2, How::kWhole);
    EXPECT_EQ(Difference(whole, Train(spec, input, 2, How::kSplit)), 0);
    const Result autograd = Train(spec, input, 2, How::kAutograd);
    EXPECT_LE(LargestDifference(whole, autograd), 1e-5 * autograd.grads.abs().max().item<double>());
  }
}

LayerSpec WideConv(int64_t stride = 1, int64_t padding = 1, int64_t dilation = 1) {
  return Spec("Conv2d", {{"in_channels", 48},
                         {"out_channels", 64},
                         {"kernel_size", 3},
                         {"stride", stride},
                         {"padding", padding},
                         {"dilation", dilation}});
}

at::Tensor Pictures(int i) { return Normal({4, 48, 9, 10}, i); }

// Convolutions with stride, padding and dilation 1 use Winograd's algorithm on a computer with
// AVX-512; the others must not.
TEST(Conv, OfManyChannelsAgreesWithAutograd) {
  for (const auto& [stride, padding, dilation] :
       {std::tuple(1, 1, 1), {2, 1, 1}, {1, 0, 1}, {1, 1, 2}, {1, 2, 2}}) {
    const LayerSpec spec = WideConv(stride, padding, dilation);
    const Result whole = Train(spec, Pictures, 2, How::kWhole);
    EXPECT_EQ(Difference(whole, Train(spec, Pictures, 2, How::kSplit)), 0);
    const Result autograd = Train(spec, Pictures, 2, How::kAutograd);
    EXPECT_LE(LargestDifference(whole, autograd), 1e-5 * autograd.grads.abs().max().item<double>())
        << stride << padding << dilation;
  }
}

TEST(Conv, AFrozenOneHasTheSameBits) {
  const auto results = [](bool frozen) {
    const auto layer = Build(WideConv());
    FlatBuffers flat(*layer);
    for (Parameter& parameter : layer->parameters()) {
      parameter.frozen = frozen;
      parameter.value.requires_grad_(!frozen);
    }
    const at::Tensor x = Pictures(1).requires_grad_();
    const at::Tensor y = layer->Forward({x}, TrainingPass())[0];
    y.backward(Normal(y.sizes(), 2));
    const at::NoGradGuard no_grad;
    return std::vector<at::Tensor>{y.detach(), x.grad(), layer->Forward({x}, TrainingPass())[0]};
  };
  const std::vector<at::Tensor> frozen = results(true), learning = results(false);
  for (size_t i = 0; i < frozen.size(); ++i) EXPECT_TRUE(SameBits(frozen[i], learning[i])) << i;
}

RC_GTEST_PROP(Embedding, HasAutogradsBits, ()) {
  const int vocabulary = InRange(1, 60), tokens = InRange(1, 40);
  Value::Map args = {{"num_embeddings", vocabulary},
                     {"embedding_dim", InRange(1, 20)},
                     {"scale_grad_by_freq", *rc::gen::arbitrary<bool>()}};
  if (*rc::gen::arbitrary<bool>()) args.emplace_back("padding_idx", InRange(0, vocabulary - 1));
  const LayerSpec spec = Spec("Embedding", args);
  const auto input = [&](int i) { return RandomTokens({tokens}, vocabulary, i); };
  const Result whole = Train(spec, input, 3, How::kWhole);
  RC_ASSERT(Difference(whole, Train(spec, input, 3, How::kSplit)) == 0);
  RC_ASSERT(Difference(whole, Train(spec, input, 3, How::kAutograd)) == 0);
}

TEST(Transformer, AgreesWithAutograd) {
  for (const std::string type : {"TransformerEncoderLayer", "TransformerDecoderLayer"}) {
    const LayerSpec spec =
        Spec(type, {{"d_model", 32}, {"nhead", 4}, {"dim_feedforward", 64}, {"dropout", 0.0}});
    const auto input = [](int i) { return Normal({8, 4, 32}, i); };
    const Result whole = Train(spec, input, 3, How::kWhole);
    EXPECT_EQ(Difference(whole, Train(spec, input, 3, How::kSplit)), 0);
    EXPECT_LE(Difference(whole, Train(spec, input, 3, How::kAutograd)), 1e-5);
  }
}

TEST(WeightGradients, TheFirstStageComputesNoGradientOfItsInput) {
  const auto layer = Build(LinearSpec(4, 3));
  FlatBuffers flat(*layer);
  const at::Tensor x = Normal({8, 4}, 1);
  layer->Forward({x}, TrainingPass())[0].sum().backward();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_GT(flat.grads.abs().sum().item<float>(), 0);
}

TEST(WeightGradients, DeferredOnesWaitAndAreFreed) {
  const auto layer = Build(LinearSpec(4, 3));
  FlatBuffers flat(*layer);
  const Pass pass = TrainingPass();
  pass.weight_gradients->set_deferred(true);
  layer->Forward({Normal({8, 4}, 1)}, pass)[0].sum().backward();
  EXPECT_EQ(flat.grads.abs().sum().item<float>(), 0);
  EXPECT_EQ(pass.weight_gradients->kept(), 1u);
  pass.weight_gradients->Run();
  EXPECT_EQ(pass.weight_gradients->kept(), 0u);
  EXPECT_GT(flat.grads.abs().sum().item<float>(), 0);
  const at::Tensor once = flat.grads.clone();
  pass.weight_gradients->Run();
  EXPECT_TRUE(SameBits(flat.grads, once));
}

TEST(WeightGradients, SeveralMicroBatchesMayBeOnTheWay) {
  const LayerSpec spec =
      Spec("Sequential", {},
           {Spec("Conv2d", {{"in_channels", 2}, {"out_channels", 4}, {"kernel_size", 3}}),
            Spec("BatchNorm2d", {{"num_features", 4}}), Spec("ReLU", {{"inplace", true}}),
            Spec("Flatten"), LinearSpec(64, 5)});
  const auto grads = [&](bool interleaved) {
    const auto layer = Build(spec);
    FlatBuffers flat(*layer);
    std::vector<at::Tensor> waiting;
    for (int i = 0; i < 3; ++i) {
      waiting.push_back(layer->Forward({Normal({3, 2, 6, 6}, i)}, TrainingPass())[0].sum());
      if (!interleaved) waiting.back().backward();
    }
    if (interleaved) {
      for (const at::Tensor& loss : waiting) loss.backward();
    }
    return flat.grads;
  };
  EXPECT_TRUE(SameBits(grads(false), grads(true)));
}

TEST(WeightGradients, AnotherParametersUpdateInTheSameBufferIsNoError) {
  const auto layer = Build(Spec("Sequential", {}, {LinearSpec(4, 4), LinearSpec(4, 4)}));
  FlatBuffers flat(*layer);
  const at::Tensor y = layer->Forward({Normal({8, 4}, 1)}, TrainingPass())[0];
  {
    const at::NoGradGuard no_grad;
    layer->parameters()[1].value.add_(1);  // the bias, which no backward reads
  }
  EXPECT_NO_THROW(y.sum().backward());
}

TEST(WeightGradients, EvaluationRecordsNothing) {
  const auto layer = Build(LinearSpec(4, 3));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(layer->Forward({Normal({8, 4}, 1)}, Pass{.training = false})[0].requires_grad());
}

TEST(BatchNorm, ItsRunningStatisticsDoNotDisturbABackwardOnTheWay) {
  const auto layer = Build(Spec("BatchNorm2d", {{"num_features", 3}}));
  FlatBuffers flat(*layer);
  const at::Tensor first = layer->Forward({Normal({4, 3, 2, 2}, 1)}, TrainingPass())[0];
  const at::Tensor second = layer->Forward({Normal({4, 3, 2, 2}, 2)}, TrainingPass())[0];
  EXPECT_NO_THROW(first.sum().backward());
  EXPECT_NO_THROW(second.sum().backward());
  EXPECT_EQ(layer->buffers()[2].value.item<int64_t>(), 2);
}

/// A recomputation does not update the running statistics. It must nevertheless compute the batch's
/// statistics in the same type as the first pass.
TEST(BatchNorm, ARecomputationInHalfPrecisionHasTheSameBits) {
  const at::Tensor x = at::randn({2, 4, 5, 5}).mul(3).add(1).to(at::kBFloat16);
  for (const char* type : {"BatchNorm2d", "InstanceNorm2d"}) {
    for (const bool affine : {false, true}) {
      for (const bool tracks : {false, true}) {
        for (const char* own : {"", "bfloat16"}) {
          Value::Map args = {
              {"num_features", 4}, {"affine", affine}, {"track_running_stats", tracks}};
          if (*own != 0) args.emplace_back("dtype", own);
          const auto layer = Build(Spec(type, args));
          Pass pass;
          pass.training = true;
          const at::Tensor first = layer->Forward({x}, pass)[0];
          pass.recomputing = true;
          EXPECT_TRUE(at::equal(layer->Forward({x}, pass)[0], first))
              << type << " affine " << affine << " tracks " << tracks << " " << own;
        }
      }
    }
  }
}

TEST(BatchNorm, OneValuePerChannelIsAnError) {
  const auto layer = Build(Spec("BatchNorm2d", {{"num_features", 3}}));
  EXPECT_THROW(layer->Forward({Normal({1, 3, 1, 1}, 1)}, TrainingPass()), ConfigError);
  EXPECT_NO_THROW(layer->Forward({Normal({1, 3, 1, 1}, 1)}, Pass{.training = false}));
}

LayerSpec InPlaceReLU() { return Spec("ReLU", {{"inplace", true}}); }

/// Runs a list of layers as a stage does. True when it changed its input.
bool Overwrites(const std::vector<LayerSpec>& specs) {
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<Layer*> chain;
  for (const LayerSpec& spec : specs) {
    layers.push_back(Build(spec));
    chain.push_back(layers.back().get());
  }
  AllowOverwriting(chain);
  const at::NoGradGuard no_grad;
  const at::Tensor x = Normal({4, 6}, 1), kept = x.clone();
  Tensors tensors = {x};
  for (Layer* layer : chain) tensors = layer->Forward(tensors, Pass{.training = false});
  return !SameBits(x, kept);
}

TEST(InPlace, AStagesInputIsNeverOverwritten) {
  EXPECT_FALSE(Overwrites({InPlaceReLU()}));
  EXPECT_FALSE(Overwrites({Spec("Identity"), InPlaceReLU()}));
  EXPECT_FALSE(Overwrites({Spec("Dropout"), Spec("Flatten"), InPlaceReLU()}));
  EXPECT_FALSE(Overwrites({Spec("Sequential", {}, {Spec("Identity")}), InPlaceReLU()}));
  EXPECT_FALSE(Overwrites({Spec("Sequential", {}, {InPlaceReLU()})}));
  EXPECT_FALSE(Overwrites({Spec("Residual", {}, {InPlaceReLU()})}));
  EXPECT_FALSE(Overwrites({LinearSpec(6, 6), InPlaceReLU()}));
}

TEST(InPlace, TheResultLiesAsTheInputInPlaceOrNot) {
  for (const char* type : {"ReLU", "LeakyReLU", "Hardtanh", "ReLU6"}) {
    const auto layer = Build(Spec(type, {{"inplace", true}}));
    const at::Tensor x =
        at::empty_strided({2, 1, 4, 5}, {20, 1, 5, 1}).copy_(Normal({2, 1, 4, 5}, 1));
    const at::Tensor kept = x.clone();
    const at::Tensor apart = layer->Forward({x}, Pass{.training = false})[0];
    EXPECT_TRUE(SameBits(x, kept)) << type;
    layer->set_may_overwrite_input(true);
    const at::Tensor within = layer->Forward({x}, Pass{.training = false})[0];
    EXPECT_TRUE(SameBits(apart, within)) << type;
    EXPECT_EQ(apart.strides(), within.strides()) << type;
  }
}

/// True when the second of two layers may write into the first one's output.
bool SecondMayOverwrite(const LayerSpec& first) {
  struct Probe : Layer {
    Tensors Forward(const Tensors& inputs, const Pass&) override { return inputs; }
    bool may() const { return may_overwrite_input_; }
  };
  const auto layer = Build(first);
  Probe probe;
  AllowOverwriting(std::vector<Layer*>{layer.get(), &probe});
  return probe.may();
}

TEST(InPlace, FreshMemoryIsOverwrittenAndNeededMemoryIsNot) {
  EXPECT_TRUE(SecondMayOverwrite(LinearSpec(6, 6)));
  EXPECT_TRUE(SecondMayOverwrite(Spec("LayerNorm", {{"normalized_shape", 6}})));
  EXPECT_TRUE(SecondMayOverwrite(Spec("Residual", {}, {Spec("Identity")})));
  EXPECT_TRUE(SecondMayOverwrite(Spec("Sequential", {}, {LinearSpec(6, 6), Spec("Flatten")})));
  for (const char* type : {"ReLU", "Tanh", "Sigmoid", "Softmax", "Identity", "Tanhshrink"}) {
    EXPECT_FALSE(SecondMayOverwrite(Spec(type))) << type;
  }
  for (const bool inplace : {true, false}) {
    EXPECT_EQ(SecondMayOverwrite(Spec("LeakyReLU", {{"inplace", inplace}})), !inplace);
  }
}

/// A layer of the type with some value for each argument that is required.
LayerSpec AnySpec(const LayerType& type) {
  const Value some = Value::MakeMap({{"kernel_size", 2},
                                     {"output_size", 2},
                                     {"threshold", 0.1},
                                     {"padding", 1},
                                     {"size", 5},
                                     {"upscale_factor", 2},
                                     {"downscale_factor", 2},
                                     {"value", 20},
                                     {"dim", type.name == "RotaryEmbedding" ? 6 : 1},
                                     {"unflattened_size", Value::IntList({2, 2})}});
  Value::Map args;
  for (const Field& field : type.fields) {
    const bool is_needed = field.required || field.name == "size";  // Upsample's, or a scale_factor
    if (is_needed) args.emplace_back(field.name, some[field.name]);
  }
  return Spec(type.name, args);
}

/// True if the backward reads the input (`input`) or else the output: autograd throws if that
/// tensor was overwritten.
bool BackwardReads(const LayerSpec& spec, const std::vector<int64_t>& shape, bool input) {
  const at::Tensor x = Normal(shape, 1).requires_grad_() * 1;
  at::Tensor y = Build(spec)->Forward({x}, TrainingPass())[0];
  (input ? x : y).add_(1);
  try {
    y.sum().backward();
    return false;
  } catch (const c10::Error&) {
    return true;
  }
}

/// A shape that the layer takes as its only input; empty = none.
std::vector<int64_t> ShapeFor(const LayerSpec& spec) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2, 4, 6, 6}, {2, 4, 6}, {2, 4, 4, 6, 6}, {2, 16, 1}}) {
    try {
      InferLayer(spec, {{shape, DType::kFloat32}}, nullptr);
      return shape;
    } catch (const ShapeError&) {
    }
  }
  return {};
}

bool IsDropout(const LayerType& type) { return type.name.find("Dropout") != std::string::npos; }

TEST(Keeps, IsWhatTheBackwardReads) {
  int count = 0;
  for (const LayerType& type : LayerTypes()) {
    const bool is_call = !type.is_loss && !type.holds_layers && !type.parameters &&
                         type.library == "nn" && type.stands_for.empty();
    if (!is_call || IsDropout(type)) continue;
    const LayerSpec spec = AnySpec(type);
    const std::vector<int64_t> shape = ShapeFor(spec);
    if (shape.empty()) continue;  // it takes two tensors
    const Keeps keeps = KeepsOf(spec);
    EXPECT_EQ(BackwardReads(spec, shape, /*input=*/true), keeps == Keeps::kInput) << type.name;
    EXPECT_EQ(BackwardReads(spec, shape, /*input=*/false), keeps == Keeps::kOutput) << type.name;
    ++count;
  }
  EXPECT_GE(count, 60);
}

// On the CPU ATen's avg_pool3d has no kernel for half types.
TEST(AvgPool, Of3DimsTakesHalfTypes) {
  const auto layer = Build(Spec("AvgPool3d", {{"kernel_size", 2}}));
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = Normal({2, 3, 4, 4, 6}, 1).to(type).set_requires_grad(true);
    const at::Tensor y = layer->Forward({x}, TrainingPass())[0];
    EXPECT_TRUE(SameBits(y, at::avg_pool3d(x.detach().to(at::kFloat), 2).to(type)));
    y.sum().backward();
    EXPECT_TRUE(x.grad().eq(0.125).all().item<bool>());
  }
}

TEST(Fold, GivesAnImageInMemoryOfItsOwnSize) {
  const Value::Map args = {{"output_size", 8}, {"kernel_size", 3}, {"padding", 1}};
  const at::Tensor x = Normal({2, 4 * 9, 64}, 1).requires_grad_();
  const at::Tensor image = Build(Spec("Fold", args))->Forward({x}, TrainingPass())[0];
  EXPECT_EQ(image.storage().nbytes(), image.nbytes());
  const std::vector<int64_t> size = {8, 8}, kernel = {3, 3}, ones = {1, 1};
  EXPECT_TRUE(SameBits(image, at::col2im(x, size, kernel, ones, ones, ones)));
  const at::Tensor gradient = Normal(image.sizes(), 2);
  image.backward(gradient);
  EXPECT_TRUE(SameBits(x.grad(), at::im2col(gradient, kernel, ones, ones, ones)));
}

TEST(InPlace, ChangesNoBitOfOutputsAndGradients) {
  const auto input = [](int i) { return Normal({8, 6}, i); };
  int count = 0;
  for (const LayerType& type : LayerTypes()) {
    if (!FindField(type.fields, "inplace") || IsDropout(type)) continue;
    const auto network = [&](bool inplace) {
      LayerSpec layer = AnySpec(type);
      layer.args.Set("inplace", inplace);
      return Spec("Sequential", {}, {LinearSpec(6, 6), layer, LinearSpec(6, 6)});
    };
    const Result in_place = Train(network(true), input, 2, How::kWhole);
    EXPECT_EQ(Difference(in_place, Train(network(false), input, 2, How::kWhole)), 0) << type.name;
    ++count;
  }
  EXPECT_GE(count, 12);
}

TEST(InPlace, AViewIsNotOverwrittenWhereItHasAGradient) {
  for (const bool has_gradient : {true, false}) {
    const auto layer = Build(InPlaceReLU());
    layer->set_may_overwrite_input(true);
    const at::Tensor x = Normal({4, 6}, 1).requires_grad_(has_gradient) * 1, kept = x.clone();
    layer->Forward({x.flatten()}, TrainingPass());
    EXPECT_EQ(SameBits(x, kept), has_gradient);
  }
}

TEST(InPlace, WorksInsideContainersWithTheSameGradients) {
  const auto network = [](bool inplace) {
    const LayerSpec relu = Spec("ReLU", {{"inplace", inplace}});
    const LayerSpec leaky = Spec("LeakyReLU", {{"inplace", inplace}});
    return Spec("Sequential", {},
                {relu, LinearSpec(6, 6), relu, relu, Spec("Tanh"), relu, LinearSpec(6, 6),
                 Spec("Residual", {}, {relu, LinearSpec(6, 6), leaky, Spec("Identity"), relu}),
                 leaky, Spec("GELU"), relu});
  };
  const auto input = [](int i) { return Normal({8, 6}, i); };
  const Result in_place = Train(network(true), input, 2, How::kWhole);
  EXPECT_EQ(Difference(in_place, Train(network(false), input, 2, How::kWhole)), 0);
}

TEST(Containers, NameAndShareTheParametersOfWhatTheyHold) {
  LayerSpec named = LinearSpec(3, 3);
  named.name = "head";
  const LayerSpec spec = Spec(
      "Sequential", {}, {LinearSpec(3, 3, false), Spec("Residual", {}, {named}), Spec("ReLU")});
  const auto layer = Build(spec);
  std::vector<std::string> names;
  for (const Parameter& p : layer->parameters()) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "1.head.weight", "1.head.bias"}));

  FlatBuffers flat(*layer);
  flat.values.zero_();
  EXPECT_EQ(layer->Forward({at::ones({1, 3})}, Pass())[0].abs().sum().item<float>(), 0);
}

TEST(Containers, DrawTheirInitialValuesOneAfterTheOther) {
  const auto layer = Build(Spec("Sequential", {}, {LinearSpec(3, 4), LinearSpec(4, 2)}), 9);
  RandomScope scope(9);
  const auto first = BuildLayer(LinearSpec(3, 4), nullptr);
  const auto second = BuildLayer(LinearSpec(4, 2), nullptr);
  EXPECT_TRUE(SameBits(layer->parameters()[0].value, first->parameters()[0].value));
  EXPECT_TRUE(SameBits(layer->parameters()[3].value, second->parameters()[1].value));
}

TEST(Containers, AStackIsItsLayerSeveralTimesWithTheSameMemoryAndMasks) {
  const LayerSpec norm_spec = Spec("LayerNorm", {{"normalized_shape", 8}});
  const at::Tensor mask = at::zeros({2, 5}, at::kBool);
  mask[1][4].fill_(true);
  for (const std::string type : {"TransformerEncoder", "TransformerDecoder"}) {
    const LayerSpec spec = Spec(type + "Layer", {{"d_model", 8},
                                                 {"nhead", 2},
                                                 {"dim_feedforward", 12},
                                                 {"dropout", 0.0},
                                                 {"batch_first", true}});
    const auto stack = Build(Spec(type, {{"num_layers", 3}}, {spec, norm_spec}));
    // All copies start with the values of `layer`.
    const auto layer = Build(spec), norm = Build(norm_spec);
    ASSERT_EQ(stack->parameters().size(), 3 * layer->parameters().size() + 2);
    EXPECT_EQ(stack->parameters()[layer->parameters().size()].name,
              "layers.1." + layer->parameters()[0].name);
    EXPECT_EQ(stack->parameters().back().name, "norm.bias");
    Tensors inputs = {Normal({2, 5, 8}, 3)};
    if (type == "TransformerDecoder") inputs.push_back(Normal({2, 7, 8}, 4));
    inputs.push_back(mask);
    const at::Tensor output = stack->Forward(inputs, Pass())[0];
    for (int i = 0; i < 3; ++i) inputs[0] = layer->Forward(inputs, Pass())[0];
    EXPECT_TRUE(SameBits(output, norm->Forward({inputs[0]}, Pass())[0])) << type;
  }
}

TEST(Containers, FreezingOneFreezesWhatItHolds) {
  LayerSpec spec = Spec("Sequential", {}, {LinearSpec(3, 4), Spec("Tanh"), LinearSpec(4, 2)});
  spec.frozen = true;
  const auto layer = Build(spec);
  EXPECT_FALSE(layer->Forward({at::ones({1, 3})}, TrainingPass())[0].requires_grad());
}

TEST(Containers, AFrozenLayerInsideStaysFrozen) {
  LayerSpec frozen = LinearSpec(3, 4);
  frozen.frozen = true;
  const auto layer = Build(Spec("Sequential", {}, {frozen, LinearSpec(4, 2)}));
  FlatBuffers flat(*layer);
  EXPECT_TRUE(layer->parameters()[0].frozen);
  layer->Forward({Normal({8, 3}, 1)}, TrainingPass())[0].sum().backward();
  EXPECT_FALSE(layer->parameters()[0].grad.defined());
  EXPECT_GT(layer->parameters()[2].grad.abs().sum().item<float>(), 0);
}

TEST(InstanceNorm, EvaluationLeavesTheStatistics) {
  const auto layer =
      Build(Spec("InstanceNorm1d", {{"num_features", 5}, {"track_running_stats", true}}));
  const at::Tensor x = Normal({3, 5, 7}, 1);
  layer->Forward({x}, Pass());
  const at::Tensor mean = layer->buffers()[0].value.clone();
  EXPECT_GT(mean.abs().max().item<float>(), 0);
  Pass evaluation;
  evaluation.training = false;
  for (int i = 0; i < 20; ++i) layer->Forward({x}, evaluation);
  EXPECT_TRUE(SameBits(layer->buffers()[0].value, mean));
}

TEST(Embedding, AnUnknownTokenIsTorchsError) {
  const auto layer = Build(Spec("Embedding", {{"num_embeddings", 5}, {"embedding_dim", 2}}));
  EXPECT_THROW(layer->Forward({at::full({2}, 5, at::kLong)}, Pass()), c10::Error);
}

TEST(Embedding, TheNormOfMaxNormMayBeTheLargestValue) {
  const auto spec = [](double norm_type) {
    return Spec("Embedding", {{"num_embeddings", 5},
                              {"embedding_dim", 4},
                              {"max_norm", 0.25},
                              {"norm_type", norm_type}});
  };
  const auto layer = Build(spec(std::numeric_limits<double>::infinity()));
  const at::Tensor before = layer->parameters()[0].value.detach().clone();
  for (int row = 0; row < 5; ++row) {
    const at::Tensor vector = layer->Forward({at::full({1}, row, at::kLong)}, Pass())[0].view({4});
    const float largest = before[row].abs().max().item<float>();
    EXPECT_GT(largest, 0.25f);
    EXPECT_NEAR(vector.abs().max().item<float>(), 0.25f, 1e-6);
    EXPECT_LT((vector - before[row] * (0.25f / largest)).abs().max().item<float>(), 1e-6);
  }
}

TEST(Threads, LayersOnFourThreadsHaveTheBitsOfOne) {
  const LayerSpec spec =
      Spec("Sequential", {},
           {LinearSpec(16, 16), Spec("Dropout"),
            Spec("TransformerEncoderLayer", {{"d_model", 16}, {"nhead", 2}}), LinearSpec(16, 4)});
  const auto grads = [&](uint64_t seed) {
    const auto layer = Build(spec, seed);
    FlatBuffers flat(*layer);
    for (int i = 0; i < 3; ++i) {
      RandomScope scope(ForwardSeed(1234, i, static_cast<int>(seed)));
      layer->Forward({Normal({5, 3, 16}, i)}, TrainingPass())[0].sum().backward();
    }
    return flat.grads;
  };
  std::vector<at::Tensor> expected, found(4);
  for (uint64_t seed = 0; seed < 4; ++seed) expected.push_back(grads(seed));
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      at::set_num_threads(1);
      found[seed] = grads(seed);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(SameBits(found[i], expected[i])) << i;
}

// oneDNN leaves these elements of the gradient unwritten. In this test new memory holds NaN.
TEST(HalfPrecision, AConvolutionsWeightsThatMeetNoInputHaveNoGradient) {
  const auto layer = Build(Spec("Conv2d", {{"in_channels", 32},
                                           {"out_channels", 64},
                                           {"kernel_size", 3},
                                           {"stride", 2},
                                           {"padding", 1},
                                           {"bias", false}}));
  FlatBuffers flat(*layer);
  Parameter& weight = layer->parameters()[0];
  weight.value = weight.value.detach().to(at::kBFloat16).set_requires_grad(true);
  layer->OnBound();
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(true);
  const at::Tensor x = Normal({8, 32, 1, 1}, 2).to(at::kBFloat16).set_requires_grad(true);
  layer->Forward({x}, TrainingPass())[0].sum().backward();
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  at::Tensor around = weight.grad.clone();
  EXPECT_GT(around.select(2, 1).select(2, 1).abs().min().item<double>(), 0);
  around.select(2, 1).select(2, 1).zero_();
  EXPECT_TRUE(around.equal(at::zeros_like(around)));
}

TEST(Recurrent, AForwardWithoutAGraphHasTheBitsOfOneWithIt) {
  for (const auto& [rows, inputs, hidden] : {std::tuple{1, 5, 3}, {3, 5, 5}, {3, 4, 5}}) {
    const auto layer = Build(Spec("LSTM", {{"input_size", inputs}, {"hidden_size", hidden}}));
    FlatBuffers flat(*layer);
    const at::Tensor x = Normal({7, rows, inputs}, 2);
    Tensors without;
    {
      const at::NoGradGuard no_grad;
      without = layer->Forward({x}, TrainingPass());
    }
    const Tensors with = layer->Forward({x.clone().set_requires_grad(true)}, TrainingPass());
    for (size_t i = 0; i < with.size(); ++i) {
      EXPECT_FALSE(without[i].requires_grad());
      EXPECT_TRUE(SameBits(without[i], with[i])) << rows << " " << hidden << " output " << i;
    }
  }
}

// ---- types of their own ----

void BindGradients(Layer& layer) {
  for (Parameter& p : layer.parameters()) p.grad = at::zeros_like(p.value.detach());
  layer.OnBound();
}

TEST(OwnTypes, ComputeInThemAndGiveWhatTheyTake) {
  LayerSpec spec = LinearSpec(4, 3);
  spec.args.Set("dtype", "float64");
  const auto layer = Build(spec);
  const auto& parameters = layer->parameters();
  ASSERT_EQ(parameters.size(), 2u);
  EXPECT_EQ(parameters[0].name, "weight");
  EXPECT_EQ(parameters[0].value.scalar_type(), at::kDouble);
  EXPECT_TRUE(parameters[0].keeps_type && parameters[1].keeps_type);
  BindGradients(*layer);
  const at::Tensor x = Normal({5, 4}, 2).set_requires_grad(true);
  const at::Tensor y = layer->Forward({x}, TrainingPass())[0];
  const at::Tensor exact =
      at::linear(x.detach().to(at::kDouble), parameters[0].value, parameters[1].value);
  EXPECT_TRUE(SameBits(y.detach(), exact.to(at::kFloat).detach()));
  y.sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(parameters[0].grad.scalar_type(), at::kDouble);
  EXPECT_TRUE(parameters[1].grad.equal(at::full({3}, 5.0, at::kDouble)));
}

// A float64 value takes other random numbers than a float32 value.
TEST(OwnTypes, InitialValuesAreDrawnInThem) {
  LayerSpec spec = LinearSpec(16, 16, /*bias=*/false);
  spec.args.Set("dtype", "float64");
  const at::Tensor weight = Build(spec)->parameters()[0].value.detach();
  RandomScope scope(1);
  const at::Tensor drawn = at::empty({16, 16}, at::kDouble).uniform_(-0.25, 0.25);
  EXPECT_LT(MaxDifference(weight, drawn), 1e-15);
  EXPECT_EQ(Build(LinearSpec(2, 2))->parameters()[0].value.scalar_type(), at::kFloat);
}

// The expected values are those of PyTorch's nn.Transformer(8, 2, 1, 1, 16, dtype=torch.float64)
// after torch.manual_seed(7).
TEST(OwnTypes, LayersInsideAreDrawnInThem) {
  const auto layer =
      Build(MakeLayer("Transformer", {8, 2, 1, 1, 16}, {{"dtype", "float64"}}, {}, ""), 7);
  const std::string name = "encoder.layers.0.linear1.weight";
  const auto weight = std::ranges::find(layer->parameters(), name, &Parameter::name);
  ASSERT_NE(weight, layer->parameters().end());
  const double* const values = weight->value.const_data_ptr<double>();
  EXPECT_NEAR(values[0], 0.05044775454602767, 1e-15);
  EXPECT_NEAR(values[1], -0.3508392738996184, 1e-15);
}

TEST(OwnTypes, TokensGiveFloat32) {
  const LayerSpec spec =
      Spec("Embedding", {{"num_embeddings", 10}, {"embedding_dim", 4}, {"dtype", "bfloat16"}});
  const auto layer = Build(spec);
  BindGradients(*layer);
  const at::Tensor y = layer->Forward({RandomTokens({3, 2}, 10, 1)}, TrainingPass())[0];
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  EXPECT_EQ(layer->parameters()[0].value.scalar_type(), at::kBFloat16);
  EXPECT_THROW(layer->CheckInput({at::full({2}, 10, at::kLong)}), ConfigError);
}

}  // namespace
}  // namespace strata
