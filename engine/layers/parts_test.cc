// Tests that parts of layers (parts.h) compute the same bits as the whole layer.
#include "engine/layers/parts.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/layers/layer.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::FlatBuffers;
using testing::SameBits;
using testing::TrainingPass;

/// The inputs of a case: one sequence, also a memory, or also masks.
enum class Given { kOne, kMemory, kMasks };

struct Case {
  const char* name;
  const char* type;
  Given given = Given::kOne;
  Value::Map more = {};
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const std::vector<Case>& Cases() {
  static const char* const kEncoder = "TransformerEncoderLayer";
  static const char* const kDecoder = "TransformerDecoderLayer";
  static const std::vector<Case> cases = {
      {"encoder", kEncoder},
      {"encoder_first_norm", kEncoder, Given::kOne, {{"norm_first", true}, {"bias", false}}},
      {"encoder_batch_first", kEncoder, Given::kOne, {{"batch_first", true}, {"causal", true}}},
      {"encoder_masks", kEncoder, Given::kMasks, {{"activation", "gelu"}}},
      {"encoder_no_dropout", kEncoder, Given::kOne, {{"dropout", 0}}},
      {"decoder", kDecoder},
      {"decoder_causal", kDecoder, Given::kOne, {{"causal", true}, {"norm_first", true}}},
      {"decoder_memory", kDecoder, Given::kMemory, {{"causal", true}}},
      {"decoder_batch_first", kDecoder, Given::kMemory, {{"batch_first", true}}},
      {"decoder_masks", kDecoder, Given::kMasks},
  };
  return cases;
}

class PartsTest : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kBatch = 3, kLength = 5, kOther = 7, kWidth = 8;

  LayerSpec Spec() const {
    Value::Map arguments = {{"dropout", 0.4}, {"dim_feedforward", 12}};
    for (const auto& [name, value] : GetParam().more) {
      std::erase_if(arguments, [&](const auto& entry) { return entry.first == name; });
      arguments.emplace_back(name, value);
    }
    return MakeLayer(GetParam().type, {kWidth, 2}, arguments, {}, "");
  }

  at::Tensor Sequence(int64_t length, double phase) const {
    const bool batch_first = Spec().Bool("batch_first");
    return at::arange(kBatch * length * kWidth, at::kFloat)
        .mul(0.7)
        .add(phase)
        .sin()
        .view({batch_first ? kBatch : length, batch_first ? length : kBatch, kWidth})
        .requires_grad_(true);
  }

  Tensors Inputs() const {
    Tensors inputs = {Sequence(kLength, 0.1)};
    const bool is_decoder = std::string(GetParam().type).find("Decoder") != std::string::npos;
    if (GetParam().given == Given::kOne) return inputs;
    if (is_decoder) inputs.push_back(Sequence(kOther, 0.9));
    if (GetParam().given == Given::kMemory) return inputs;
    const auto padding = [](int64_t length) {
      return at::arange(kBatch * length).view({kBatch, length}).remainder(4).eq(3);
    };
    inputs.push_back(padding(kLength));
    if (is_decoder) inputs.push_back(padding(kOther));
    return inputs;
  }
};

/// Runs the layers of a list forward and backward. If they are `apart`, as on stages of their own,
/// each has a RandomScope of its own with the same seed; otherwise all share one.
struct Course {
  Course(const std::vector<Layer*>& layers, const Tensors& given, bool training,
         bool apart = true) {
    const Pass pass = [&] {
      Pass p = training ? TrainingPass() : Pass();
      p.training = training;
      return p;
    }();
    Tensors x = given;
    std::optional<RandomScope> scope;
    for (Layer* layer : layers) {
      if (apart) scope.reset();
      if (!scope) scope.emplace(23);
      x = layer->Forward(x, pass);
    }
    output = x.at(0);
    if (!training) return;
    const at::Tensor gradient = at::arange(output.numel(), at::kFloat).cos().view(output.sizes());
    output.backward(gradient);
    for (const at::Tensor& input : given) gradients.push_back(input.grad());
  }
  at::Tensor output;
  Tensors gradients;
};

bool All(int) { return true; }

std::unique_ptr<Layer> Build(const LayerSpec& spec) {
  const RandomScope scope(17);
  return BuildLayer(spec, nullptr);
}

/// The parts of a layer. With `draw_on` they are built in one RandomScope, as neighbours on one
/// stage are; otherwise each is built in a scope of its own, as on different stages.
struct Parts {
  Parts(const LayerSpec& whole, bool draw_on) {
    std::optional<RandomScope> draws;
    for (const LayerSpec& spec : InParts({whole}, All)) {
      if (!draw_on) draws.reset();
      if (!draws) draws.emplace(17);
      parts.push_back(BuildLayer(spec, nullptr));
      chain.push_back(parts.back().get());
      buffers.emplace_back(*parts.back());
    }
    AllowOverwriting(chain);
  }
  std::vector<std::unique_ptr<Layer>> parts;
  std::vector<Layer*> chain;
  std::vector<FlatBuffers> buffers;
};

/// Compares all parameters, their gradients and all buffers; each must occur in exactly one part.
void ExpectBitsOf(Layer& whole, const Parts& parts, const char* when) {
  size_t compared = 0;
  for (Layer* part : parts.chain) {
    for (const Parameter& parameter : part->parameters()) {
      for (const Parameter& expected : whole.parameters()) {
        if (parameter.name != expected.name) continue;
        EXPECT_TRUE(SameBits(parameter.value, expected.value)) << expected.name << when;
        EXPECT_TRUE(SameBits(parameter.grad, expected.grad)) << expected.name << when;
        ++compared;
      }
    }
    for (const LayerBuffer& buffer : part->buffers()) {
      for (const LayerBuffer& expected : whole.buffers()) {
        if (buffer.name != expected.name) continue;
        EXPECT_TRUE(SameBits(buffer.value, expected.value)) << expected.name << when;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, whole.parameters().size() + whole.buffers().size());
}

void ExpectBitsOfTheWhole(const LayerSpec& spec, size_t count,
                          const std::function<Tensors()>& inputs) {
  for (const bool draw_on : {false, true}) {
    const std::unique_ptr<Layer> whole = Build(spec);
    const FlatBuffers of_whole(*whole);
    const Parts parts(spec, draw_on);
    ASSERT_EQ(parts.parts.size(), count);
    ExpectBitsOf(*whole, parts, " at first");
    for (const auto& [training, apart] : {std::pair(true, true), {true, false}, {false, true}}) {
      const Course expected({whole.get()}, inputs(), training);
      const Course got(parts.chain, inputs(), training, apart);
      EXPECT_TRUE(SameBits(got.output, expected.output)) << "training " << training << apart;
      for (size_t i = 0; i < got.gradients.size(); ++i) {
        if (!expected.gradients[i].defined()) continue;
        EXPECT_TRUE(SameBits(got.gradients[i], expected.gradients[i])) << "input " << i;
      }
    }
    ExpectBitsOf(*whole, parts, " behind a pass");
  }
}

void ExpectDeclaredParameters(const LayerSpec& whole) {
  for (const LayerSpec& part : InParts({whole}, All)) {
    std::vector<std::string> built, declared;
    const std::unique_ptr<Layer> layer = Build(part);
    for (const Parameter& parameter : layer->parameters()) built.push_back(parameter.name);
    for (const LayerBuffer& buffer : layer->buffers()) built.push_back(buffer.name);
    for (const ParameterSpec& parameter : ParametersOf(part)) declared.push_back(parameter.name);
    std::ranges::sort(built);
    std::ranges::sort(declared);
    EXPECT_EQ(built, declared) << part.type;
  }
}

TEST_P(PartsTest, HaveTheBitsOfTheWhole) {
  ExpectBitsOfTheWhole(Spec(), 2, [&] { return Inputs(); });
}

TEST_P(PartsTest, HaveTheParametersThatTheyDeclare) { ExpectDeclaredParameters(Spec()); }

INSTANTIATE_TEST_SUITE_P(All, PartsTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- Containers

LayerSpec Make(const char* type, Value::List arguments = {}, Value::Map named = {},
               std::vector<LayerSpec> children = {}) {
  return MakeLayer(type, arguments, named, std::move(children), "");
}
LayerSpec Holding(const char* type, std::vector<LayerSpec> children) {
  return Make(type, {}, {}, std::move(children));
}

struct Container {
  const char* name;
  std::vector<LayerSpec> layers;
  size_t parts;
  std::vector<int64_t> input = {5, 3, 8};
};

void PrintTo(const Container& c, std::ostream* out) { *out << c.name; }

/// Containers whose body keeps the shape of its input.
std::vector<Container> Containers() {
  const LayerSpec relu = Make("ReLU", {}, {{"inplace", true}}), square = Make("Linear", {8, 8});
  const LayerSpec up = Make("Linear", {8, 12}), down = Make("Linear", {12, 8});
  const LayerSpec norm = Make("LayerNorm", {8}), dropout = Make("Dropout", {0.4});
  const LayerSpec conv = Make("Conv2d", {3, 3, 3}, {{"padding", 1}}),
                  batch = Make("BatchNorm2d", {3});
  const LayerSpec attention =
      Make("MultiheadAttention", {8, 2}, {{"batch_first", true}, {"causal", true}});
  const LayerSpec encoder = Make("TransformerEncoderLayer", {8, 2});
  return {
      {"mlp", {up, relu, down}, 3},
      {"norm_first", {norm, up, Make("GELU"), down, dropout, square}, 5},
      {"in_place_first", {relu, square, Make("LeakyReLU", {}, {{"inplace", true}}), square}, 4},
      {"views", {Make("Identity"), relu, Make("Identity"), Make("Tanh"), relu}, 5},
      {"conv", {conv, batch, relu, conv, batch}, 5, {4, 3, 5, 5}},
      {"attention", {attention, norm}, 2},
      {"attention_behind", {norm, attention, dropout}, 3},
      {"drawing", {square, encoder, square}, 2},
      {"many", std::vector<LayerSpec>(13, square), 10},
      {"nested",
       {square, Holding("Residual", {up, relu, down}), Holding("Sequential", {norm, square}),
        Holding("Sequential", {square, dropout})},
       4},
  };
}

class ContainerPartsTest : public ::testing::TestWithParam<Container> {
 protected:
  static Tensors Inputs() {
    int64_t count = 1;
    for (const int64_t size : GetParam().input) count *= size;
    const at::Tensor numbers = at::arange(count, at::kFloat).mul(0.7).sin();
    return {numbers.view(GetParam().input).requires_grad_(true)};
  }
};

TEST_P(ContainerPartsTest, HaveTheBitsOfTheWhole) {
  for (const char* type : {"Residual", "Sequential"}) {
    ExpectBitsOfTheWhole(Holding(type, GetParam().layers), GetParam().parts, Inputs);
    ExpectDeclaredParameters(Holding(type, GetParam().layers));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ContainerPartsTest, ::testing::ValuesIn(Containers()),
                         [](const auto& info) { return std::string(info.param.name); });

/// Parts of a Sequential pass on as many tensors as its layers do, such as a GRU's sequence and
/// states.
TEST(ContainerParts, PassStatesOn) {
  const auto cell = [](int in) { return Make("GRU", {in, 8}, {{"batch_first", true}}); };
  const auto input = [] { return Tensors{at::arange(48, at::kFloat).sin().view({2, 3, 8})}; };
  ExpectBitsOfTheWhole(Holding("Sequential", {Make("Linear", {8, 8}), cell(8), cell(8)}), 3, input);
}

/// A Residual's input may be several tensors from which its first layer makes one. All of them are
/// passed on.
TEST(ContainerParts, OfAResidualKeepAllOfItsInput) {
  const LayerSpec pair = Make("CosineSimilarity", {2}), whole = Holding("Residual", {pair, pair});
  ASSERT_EQ(InParts({whole}, All).size(), 2u);
  const Parts parts(whole, /*draw_on=*/false);
  const at::Tensor a = at::ones({2, 3, 4}), b = a.mul(2);
  const Tensors outputs = parts.chain[0]->Forward({a, b}, Pass());
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_TRUE(outputs[0].is_same(a) && outputs[1].is_same(b));
  EXPECT_EQ(outputs[2].dim(), 2);
}

/// The Residual's input is added at the end. So no layer of the body may overwrite it, even if the
/// first part may overwrite its input.
TEST(ContainerParts, OfAResidualLeaveItsInput) {
  const LayerSpec relu = Make("ReLU", {}, {{"inplace", true}});
  for (const std::vector<LayerSpec>& body :
       {std::vector{relu, relu}, std::vector{Make("Identity"), relu}}) {
    const Parts parts(Holding("Residual", body), /*draw_on=*/false);
    AllowOverwriting(parts.chain, /*first_may=*/true);
    const at::Tensor x = at::arange(-4, 4, at::kFloat), kept = x.clone();
    Tensors tensors = {x};
    for (Layer* part : parts.chain) tensors = part->Forward(tensors, Pass());
    EXPECT_TRUE(SameBits(x, kept));
    EXPECT_TRUE(SameBits(tensors[0], kept.add(kept.relu())));
  }
}

/// The tensor between two parts may be overwritten, as it may be within the whole layer.
TEST(ContainerParts, WorkInPlaceAsTheWholeDoes) {
  const LayerSpec relu = Make("ReLU", {}, {{"inplace", true}});
  for (const char* type : {"Residual", "Sequential"}) {
    const Parts parts(Holding(type, {Make("Linear", {8, 8}), relu, Make("Tanh")}), false);
    const at::NoGradGuard no_grad;
    const Tensors first = parts.chain[0]->Forward({at::ones({2, 8})}, Pass());
    EXPECT_TRUE(parts.chain[1]->Forward(first, Pass()).back().is_same(first.back())) << type;
  }
}

}  // namespace
}  // namespace strata
