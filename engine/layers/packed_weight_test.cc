// Packed weights: bitsandbytes' codes and values, equal bits from every kernel and for every part,
// and what layers compute with them.
#include "engine/layers/packed_weight.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/base/value.h"
#include "engine/layers/cuda/unpack_kernels.h"
#include "engine/layers/kernels/avx512.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::Normal;
using testing::SameBits;

constexpr Packing kPackings[] = {Packing::kNf4, Packing::kInt8};
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble};

PackedWeight Packed(Packing packing, const at::Tensor& values) {
  PackedWeight weight(packing, values.size(0), values.size(1));
  weight.Pack(values);
  return weight;
}

/// By ATen, which shares no code with the kernels.
at::Tensor ByAten(const PackedWeight& weight, at::ScalarType type, int64_t first = 0) {
  return UnpackedByAten(
      {weight.packing(), weight.codes(), weight.scales(), first, weight.rows(), weight.columns()},
      type);
}

at::Tensor TensorOf(const Value& list, at::ScalarType type) {
  std::vector<double> numbers;
  for (const Value& number : list.as_list()) numbers.push_back(number.as_double());
  return at::tensor(numbers, at::kDouble).to(type);
}

/// testdata/make_packed.py
TEST(PackedWeight, HasTheCodesAndValuesOfBitsandbytes) {
  std::ifstream file("engine/layers/testdata/packed.json");
  const Value golden = Value::FromJson(std::string(std::istreambuf_iterator<char>(file), {}));
  const at::Tensor values = TensorOf(golden["values"], at::kFloat).view({5, 70});
  for (const Packing packing : kPackings) {
    const Value& wanted = golden[PackingName(packing)];
    for (const at::ScalarType type : kTypes) {
      const PackedWeight weight = Packed(packing, values.to(type));
      EXPECT_TRUE(SameBits(weight.codes(), TensorOf(wanted["codes"], at::kByte))) << type;
      EXPECT_TRUE(SameBits(weight.scales(), TensorOf(wanted["scales"], at::kFloat))) << type;
      const at::Tensor dense = TensorOf(wanted["dense"], at::kFloat).view({5, 70});
      EXPECT_TRUE(SameBits(weight.Dense(type), dense.to(type))) << type;
    }
  }
}

struct Sizes {
  int64_t rows, columns;
};

TEST(PackedWeight, HasEqualBitsFromEachKernelAndInEachPart) {
  for (const Packing packing : kPackings) {
    for (const auto& [rows, columns] :
         std::vector<Sizes>{{1, 1}, {3, 7}, {2, 64}, {5, 70}, {4, 129}, {300, 513}}) {
      const PackedWeight weight = Packed(packing, Normal({rows, columns}, 1));
      EXPECT_EQ(weight.codes().numel(), CodeBytes(packing, rows, columns));
      EXPECT_EQ(weight.scales().numel(), ScaleCount(packing, rows, columns));
      for (const at::ScalarType type : kTypes) {
        const at::Tensor dense = weight.Dense(type);
        EXPECT_TRUE(SameBits(dense, ByAten(weight, type))) << rows << " x " << columns << type;
        const auto plain = [&] {
          const WithoutAvx512 without;
          return weight.Dense(type);
        }();
        const auto plainest = [&] {
          const WithoutAvx2 without;
          return weight.Dense(type);
        }();
        EXPECT_TRUE(SameBits(plain, dense) && SameBits(plainest, dense)) << type;
        const int64_t begin = rows / 3, size = rows - begin;
        EXPECT_TRUE(SameBits(weight.Rows(begin, size)->Dense(type), dense.narrow(0, begin, size)));
        at::set_num_threads(3);
        EXPECT_TRUE(SameBits(weight.Dense(type), dense));
        EXPECT_TRUE(SameBits(Packed(packing, Normal({rows, columns}, 1)).codes(), weight.codes()));
        at::set_num_threads(1);
      }
    }
  }
}

/// No value is further away than half of the widest gap between codes.
TEST(PackedWeight, RoundsToTheNearestCode) {
  const at::Tensor values = Normal({64, 256}, 3);
  for (const auto& [packing, gap] :
       {std::pair(Packing::kNf4, 0.304F), {Packing::kInt8, 0.00788F}}) {
    const PackedWeight weight = Packed(packing, values);
    const int64_t block = BlockElements(packing, 256);
    const at::Tensor off = (weight.Dense(at::kFloat) - values).abs().view({-1, block});
    EXPECT_TRUE((off <= weight.scales().view({-1, 1}) * (gap / 2 * 1.001F)).all().item<bool>());
    // The largest is a code itself; that of int8 is 127, which is rounded twice.
    const at::Tensor largest = values.abs().view({-1, block});
    EXPECT_LT(at::where(largest == weight.scales().view({-1, 1}), off, 0).max().item<float>(),
              1e-6);
  }
}

TEST(PackedWeight, KeepsWhatIsNotFinite) {
  for (const Packing packing : kPackings) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      at::Tensor values = Normal({2, 128}, 4);
      values[1][100] = bad;
      const at::Tensor dense = Packed(packing, values).Dense(at::kBFloat16);
      EXPECT_TRUE(dense[0].isfinite().all().item<bool>());
      EXPECT_FALSE(dense[1].isfinite().all().item<bool>()) << PackingName(packing) << bad;
    }
  }
}

/// A layer of this spec with its matrices packed, or with dense ones of the same values. `learns`:
/// its other parameters learn.
std::unique_ptr<Layer> Built(LayerSpec spec, Packing packing, bool learns, bool dense) {
  for (const ParameterSpec& parameter : ParametersOf(spec)) {
    const bool is_matrix = parameter.shape.size() == 2;
    if (is_matrix) spec.packed.weights.push_back(parameter.name);
    if (is_matrix || !learns) spec.frozen_parameters.push_back(parameter.name);
  }
  spec.packed.packing = packing;
  const RandomScope scope(5);
  auto layer = BuildLayer(spec, nullptr);
  for (Parameter& parameter : layer->parameters()) {
    if (dense && parameter.packed) {
      parameter.value = parameter.packed->Dense(at::kFloat);
      parameter.packed = nullptr;
    }
    if (!parameter.frozen) parameter.grad = at::zeros_like(parameter.value.detach());
  }
  layer->OnBound();
  return layer;
}

struct LayerCase {
  const char* type;
  Value::List arguments;
  Value::Map named;
  std::vector<int64_t> input;
};

/// Output and gradients have the bits of the same frozen layer with dense weights. Where a bias
/// learns, it is added by itself.
TEST(PackedWeight, LayersComputeAsWithTheDenseWeights) {
  const Value::Map encoder = {{"dim_feedforward", 40}, {"batch_first", true}, {"dropout", 0.0}};
  for (const LayerCase& c : std::vector<LayerCase>{
           {"Linear", {24, 40}, {}, {3, 24}},
           {"Linear", {24, 40}, {{"bias", false}}, {50, 24}},
           {"SwiGLU", {24, 40}, {}, {2, 5, 24}},
           {"GroupedQueryAttention", {24, 3}, {}, {2, 5, 24}},
           {"MultiheadAttention", {24, 3}, {{"batch_first", true}}, {2, 5, 24}},
           {"TransformerEncoderLayer", {24, 3}, encoder, {2, 5, 24}},
       }) {
    for (const auto& [packing, learns] : std::vector<std::pair<Packing, bool>>{
             {Packing::kNf4, false}, {Packing::kInt8, false}, {Packing::kNf4, true}}) {
      std::vector<Tensors> results;
      for (const bool dense : {false, true}) {
        const LayerSpec spec = MakeLayer(c.type, c.arguments, c.named, {}, "net.lua:1");
        const auto layer = Built(spec, packing, learns, dense);
        const at::Tensor x = Normal(c.input, 6).requires_grad_(true);
        const bool is_attention = spec.type == "MultiheadAttention";
        // Other queries than keys take other rows of the packed projections.
        const Tensors inputs = is_attention ? Tensors{x, x.flip(0), x.flip(1)} : Tensors{x};
        const Tensors outputs = layer->Forward(inputs, testing::TrainingPass());
        outputs[0].square().sum().backward();
        Tensors& all = results.emplace_back(Tensors{outputs[0], x.grad()});
        for (const at::Tensor& grad : testing::Grads(*layer)) {
          if (grad.defined()) all.push_back(grad);
        }
      }
      ASSERT_EQ(results[0].size(), results[1].size());
      for (size_t i = 0; i < results[0].size(); ++i) {
        EXPECT_GT(results[0][i].abs().max().item<float>(), 0) << c.type << i;
        EXPECT_TRUE(learns ? at::allclose(results[0][i], results[1][i], 1e-5, 1e-5)
                           : SameBits(results[0][i], results[1][i]))
            << c.type << " " << PackingName(packing) << ", tensor " << i;
      }
    }
  }
}

/// nn.Transformer draws its matrices again after its layers have drawn theirs, and the copies of a
/// stack begin with equal values.
TEST(PackedWeight, TakesTheValuesThatContainersGive) {
  const Value::Map sizes = {{"dim_feedforward", 32}};
  const LayerSpec layer = MakeLayer("TransformerEncoderLayer", {16, 2}, sizes, {}, "net.lua:1");
  const Value::Map counts = {
      {"num_encoder_layers", 2}, {"num_decoder_layers", 1}, {"dim_feedforward", 32}};
  for (const LayerSpec& plain :
       {MakeLayer("Transformer", {16, 2}, counts, {}, "net.lua:1"),
        MakeLayer("TransformerEncoder", {}, {{"num_layers", 2}}, {layer}, "net.lua:1")}) {
    LayerSpec packed = plain;
    const bool is_stack = plain.type == "TransformerEncoder";
    LayerSpec& inside = is_stack ? packed.children[0] : packed.children[0].children[0];
    inside.packed = {Packing::kInt8, {"linear1.weight"}};
    inside.frozen_parameters = {"linear1.weight"};
    const auto build = [](const LayerSpec& spec) {
      const RandomScope scope(7);
      return BuildLayer(spec, nullptr);
    };
    const auto expected = build(plain), got = build(packed);
    int count = 0;
    for (size_t i = 0; i < got->parameters().size(); ++i) {
      const Parameter &own = got->parameters()[i], &dense = expected->parameters()[i];
      if (!own.packed) continue;
      ++count;
      EXPECT_TRUE(SameBits(own.packed->codes(), Packed(Packing::kInt8, dense.value).codes()))
          << plain.type << " " << own.name;
    }
    EXPECT_EQ(count, 2) << plain.type;
  }
}

/// Neither do low-rank parts change what nn.Transformer draws, nor does it draw them.
TEST(LowRank, LeavesTheValuesThatContainersGive) {
  const Value::Map counts = {
      {"num_encoder_layers", 2}, {"num_decoder_layers", 1}, {"dim_feedforward", 32}};
  const LayerSpec plain = MakeLayer("Transformer", {16, 2}, counts, {}, "net.lua:1");
  LayerSpec adapted = plain;
  adapted.children[0].children[0].low_rank = {
      .rank = 2, .alpha = 4, .dropout = 0, .weights = {"linear1.weight"}, .path = ""};
  const auto build = [](const LayerSpec& spec) {
    const RandomScope scope(7);
    return BuildLayer(spec, nullptr);
  };
  const auto expected = build(plain), got = build(adapted);
  int others = 0, parts = 0;
  for (const Parameter& own : got->parameters()) {
    if (own.name.find("lora_") != std::string::npos) {
      ++parts;
      EXPECT_EQ(own.value.abs().max().item<float>() == 0, own.name.ends_with("lora_B.weight"));
      continue;
    }
    const auto same = std::ranges::find(expected->parameters(), own.name, &Parameter::name);
    ASSERT_NE(same, expected->parameters().end()) << own.name;
    EXPECT_TRUE(SameBits(own.value, same->value)) << own.name;
    ++others;
  }
  EXPECT_EQ(others, std::ssize(expected->parameters()));
  EXPECT_EQ(parts, 4) << "two matrices in each of two layers";
}

}  // namespace
}  // namespace strata
