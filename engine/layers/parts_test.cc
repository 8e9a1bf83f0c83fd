// Parts of layers (engine/spec/layers/parts.h) have the whole's bits.
#include "engine/spec/layers/parts.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/layers/layer.h"
#include "engine/layers/testing.h"
#include "engine/spec/layers/layers.h"

namespace strata {
namespace {

using testing::FlatBuffers;
using testing::SameBits;
using testing::TrainingPass;

/// Which inputs behind the first there are.
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

  static std::unique_ptr<Layer> Build(const LayerSpec& spec) {
    const RandomScope scope(17);
    return BuildLayer(spec, nullptr);
  }
};

/// A pass through the layers of a list and back. All draw as the first, each with a scope of its
/// own where they are `apart`.
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

TEST_P(PartsTest, HaveTheBitsOfTheWhole) {
  const LayerSpec spec = Spec();
  const std::unique_ptr<Layer> whole = Build(spec);
  const FlatBuffers of_whole(*whole);
  std::vector<std::unique_ptr<Layer>> parts;
  std::vector<Layer*> chain;
  std::vector<FlatBuffers> of_parts;
  for (const LayerSpec& part : InParts({spec}, [](int) { return true; })) {
    parts.push_back(Build(part));
    chain.push_back(parts.back().get());
    of_parts.emplace_back(*parts.back());
  }
  ASSERT_EQ(parts.size(), 2u);
  size_t compared = 0;
  const auto compare = [&](const char* when) {
    for (const Parameter& expected : whole->parameters()) {
      for (Layer* part : chain) {
        for (const Parameter& parameter : part->parameters()) {
          if (parameter.name != expected.name) continue;
          EXPECT_TRUE(SameBits(parameter.value, expected.value)) << expected.name << when;
          EXPECT_TRUE(SameBits(parameter.grad, expected.grad)) << expected.name << when;
          ++compared;
        }
      }
    }
  };
  compare(" at first");
  for (const auto& [training, apart] : {std::pair(true, true), {true, false}, {false, true}}) {
    const Course expected({whole.get()}, Inputs(), training);
    const Course got(chain, Inputs(), training, apart);
    EXPECT_TRUE(SameBits(got.output, expected.output)) << "training " << training << apart;
    for (size_t i = 0; i < got.gradients.size(); ++i) {
      if (!expected.gradients[i].defined()) continue;
      EXPECT_TRUE(SameBits(got.gradients[i], expected.gradients[i])) << "input " << i;
    }
  }
  compare(" behind a pass");
  EXPECT_EQ(compared, 2 * whole->parameters().size());
}

TEST_P(PartsTest, HaveTheParametersThatTheyDeclare) {
  for (const LayerSpec& part : InParts({Spec()}, [](int) { return true; })) {
    std::vector<std::string> built, declared;
    const std::unique_ptr<Layer> layer = Build(part);
    for (const Parameter& parameter : layer->parameters()) built.push_back(parameter.name);
    for (const ParameterSpec& parameter : ParametersOf(part)) declared.push_back(parameter.name);
    EXPECT_EQ(built, declared) << part.type;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PartsTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace strata
