#include "engine/runtime/update/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/job/parameter_groups.h"
#include "engine/layers/testing_spec.h"

namespace strata {
namespace {

constexpr int kElements = 20;

/// A buffer with the parameters of the reference: parameter i is sin(0.7 i).
FlatBuffer Buffer() {
  FlatBuffer buffer{-1, at::zeros({kElements}), at::zeros({kElements})};
  for (int i = 0; i < kElements; ++i) {
    buffer.values.data_ptr<float>()[i] = static_cast<float>(std::sin(0.7 * i));
  }
  return buffer;
}

/// Gradient i of step t is cos(0.3 i + 1.1 t), times `factor`.
void SetGradients(FlatBuffer& buffer, int t, float factor = 1) {
  for (int i = 0; i < kElements; ++i) {
    const auto gradient = static_cast<float>(std::cos(0.3 * i + 1.1 * t));
    buffer.gradients.data_ptr<float>()[i] = factor * gradient;
  }
}

/// The spec of an optimizer, with PyTorch's defaults for options that are not given.
OptimizerSpec Spec(const std::string& type, Value::Map options = {}) {
  Call call = {.subject = type, .named = std::move(options)};
  return {type, Canonicalize(FindOptimizerType(type).fields, call), {}};
}

OptimizerSpec Sgd(Value::Map options) {
  options.emplace_back("lr", 0.1);
  return Spec("sgd", std::move(options));
}

/// The whole buffer as one parameter.
PlacedParameter Parameter(const FlatBuffer& buffer, const std::vector<int64_t>& shape) {
  PlacedParameter parameter;
  parameter.path = "0.weight";
  parameter.value = parameter.leaf = buffer.values.view(shape);
  parameter.gradient = buffer.gradients.view(shape);
  parameter.buffer = 0;
  return parameter;
}

// The reference was computed by torch.optim (testdata/make_optimizers.py). SGD is equal bit for
// bit, the others within rounding; Muon computes in bfloat16.
TEST(OptimizerTest, EqualsPyTorch) {
  const Value golden = ReadJson("engine/runtime/testdata/optimizers.json");
  std::set<std::string> types;
  for (const Value& entry : golden.as_list()) {
    const Value::List& parts = entry.as_list();
    const std::string& type = parts[0].as_string();
    types.insert(type);
    FlatBuffer buffer = Buffer();
    const std::vector<PlacedParameter> parameters = {Parameter(buffer, parts[2].as_ints())};
    const auto optimizer = MakeOptimizer(Spec(type, parts[1].as_map()), {buffer}, parameters);
    for (int t = 0; t < 5; ++t) {
      SetGradients(buffer, t);
      optimizer->Step(1, 1);
    }
    for (int i = 0; i < kElements; ++i) {
      const bool is_tail = i >= FlatParameters::kPadding;  // buffers of stages have no such tail
      const double rounding = type == "sgd" && !is_tail ? 0 : 3e-7;
      const double tolerance = type == "muon" ? 2e-3 : rounding;
      EXPECT_NEAR(buffer.values[i].item<float>(), parts[3].as_list()[i].as_double(), tolerance)
          << type << " " << parts[1].ToJson() << " element " << i;
    }
  }
  EXPECT_EQ(types.size(), OptimizerTypes().size());
}

class OptimizerTypeTest : public testing::TestWithParam<std::string> {
 protected:
  static OptimizerSpec OfType() {
    return GetParam() == "sgd" ? Sgd({{"momentum", 0.9}}) : Spec(GetParam());
  }
  /// Makes an optimizer of the buffer as a matrix, which all types can update.
  static std::unique_ptr<Optimizer> Make(const OptimizerSpec& spec, const FlatBuffer& buffer,
                                         int rows = 4) {
    const int64_t columns = 20 / rows;
    FlatBuffer head = buffer;
    const std::vector<PlacedParameter> parameters = {[&] {
      FlatBuffer part = {-1, buffer.values.narrow(0, 0, kElements),
                         buffer.gradients.narrow(0, 0, kElements)};
      return Parameter(part, {rows, columns});
    }()};
    return MakeOptimizer(spec, {head}, parameters);
  }
};

TEST_P(OptimizerTypeTest, DividesTheGradientsOnce) {
  struct Division {
    float factor;  // a power of two, so there is no rounding
    double plain, divided;
  };
  // The second: clipped gradients near the largest float. The divisor is more than a float holds.
  for (const auto& [factor, by, by_more] : {Division{4, 1, 4}, {0x1p120F, 0x1p10, 0x1p130}}) {
    FlatBuffer plain = Buffer(), divided = Buffer();
    const auto of_plain = Make(OfType(), plain);
    const auto of_divided = Make(OfType(), divided);
    for (int t = 0; t < 3; ++t) {
      SetGradients(plain, t);
      SetGradients(divided, t, factor);
      of_plain->Step(1, by);
      of_divided->Step(1, by_more);
      EXPECT_TRUE(divided.gradients.equal(plain.gradients)) << factor;
    }
    EXPECT_TRUE(divided.values.equal(plain.values)) << factor;
  }
}

TEST_P(OptimizerTypeTest, PaddingStaysZero) {
  FlatBuffer buffer{-1, at::zeros({32}), at::zeros({32})};
  buffer.values.narrow(0, 0, 5).fill_(1);
  const auto optimizer = Make(OfType(), buffer);
  for (int t = 0; t < 3; ++t) {
    buffer.gradients.narrow(0, 0, 5).fill_(0.5);
    optimizer->Step(1, 3);
  }
  EXPECT_TRUE(buffer.values.narrow(0, 5, 27).equal(at::zeros({27})));
}

/// The number of elements is not a multiple of what a vector loop handles at once.
TEST_P(OptimizerTypeTest, HalfTypesMoveAsFloat32Nearly) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    FlatBuffer whole = Buffer(), half = Buffer();
    half.values = half.values.to(type);
    half.gradients = half.gradients.to(type);
    const at::Tensor before = half.values.clone();
    const auto of_whole = Make(OfType(), whole), of_half = Make(OfType(), half);
    for (int t = 0; t < 3; ++t) {
      SetGradients(whole, t);
      half.gradients.copy_(whole.gradients);
      of_whole->Step(1, 1);
      of_half->Step(1, 1);
    }
    const double moved = (whole.values - before).norm().item<double>();
    const double off = (whole.values - half.values).norm().item<double>();
    EXPECT_LT(off, 0.3 * moved + 0.01 * whole.values.norm().item<double>()) << type;
    if (GetParam() == "sgd") {
      EXPECT_FALSE(half.values.eq(before).any().item<bool>());
      EXPECT_LT(off, 0.03 * moved);
    }
  }
}

/// Vector loops handle most elements; the remainder is handled by other code.
TEST_P(OptimizerTypeTest, TheBitsOfHalfTypesDependOnNoPlace) {
  if (FindOptimizerType(GetParam()).sees != OptionTable::Sees::kElements) return;
  constexpr int kAll = 200;
  OptimizerSpec spec = OfType();
  for (const auto& [name, value] :
       Value::Map{{"lr", 0.05}, {"weight_decay", 0.1}, {"momentum", 0.9}, {"nesterov", true}}) {
    if (spec.options.Has(name)) spec.options.Set(name, value);
  }
  const at::Tensor values = at::arange(kAll).mul(0.7).sin();
  const at::Tensor gradients = at::arange(kAll).mul(0.3).cos().add(1.5);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const auto run = [&](int64_t from, int64_t count) {  // the values and all moments
      const auto part = [&](const at::Tensor& all) { return all.narrow(0, from, count).to(type); };
      const FlatBuffer buffer{-1, part(values), part(gradients)};
      const auto optimizer = MakeOptimizer(spec, {buffer});
      for (int t = 0; t < 10; ++t) {
        buffer.gradients.copy_(part(gradients).mul(1 + 0.1 * t));
        optimizer->Step(1, 3);
      }
      std::vector<at::Tensor> rows = {buffer.values};
      const std::vector<OptimizerState> states = optimizer->state();
      for (const Moment& moment : states[0].moments) rows.push_back(moment.values);
      return at::stack(rows);
    };
    const at::Tensor whole = run(0, kAll);
    for (int count = 1; count <= 70; ++count) {
      EXPECT_TRUE(run(30, count).equal(whole.narrow(1, 30, count))) << type << " " << count;
    }
  }
}

TEST_P(OptimizerTypeTest, TheFactorMultipliesTheRate) {
  FlatBuffer a = Buffer(), b = Buffer();
  if (GetParam() == "adafactor") return;  // its lr is only an upper limit
  OptimizerSpec half = OfType();
  half.options.Set("lr", half.options["lr"].as_double() / 2);
  const auto of_a = Make(OfType(), a);
  const auto of_b = Make(half, b);
  SetGradients(a, 0);
  SetGradients(b, 0);
  of_a->Step(0.5, 1);
  of_b->Step(1, 1);
  EXPECT_TRUE(a.values.equal(b.values));
}

/// As in torch.optim, where every parameter counts its own steps from its first gradient.
TEST_P(OptimizerTypeTest, AParameterThatBeginsLaterCountsItsOwnSteps) {
  constexpr int64_t kEach = 32;
  const auto buffer_of = [](int64_t count) {
    return FlatBuffer{-1, at::arange(count).mul(0.7).sin(), at::zeros({count})};
  };
  const auto parameter = [](const FlatBuffer& buffer, const char* path, int64_t offset) {
    const FlatBuffer part = {-1, buffer.values.narrow(0, offset, kEach),
                             buffer.gradients.narrow(0, offset, kEach)};
    PlacedParameter placed = Parameter(part, {4, 8});
    placed.path = path;
    placed.offset = offset;
    return placed;
  };
  const auto gradients = [](int t, int64_t from, int64_t count) {
    return at::arange(from, from + count).mul(0.3).add(1.1 * t).cos();
  };
  const FlatBuffer both = buffer_of(2 * kEach), first = buffer_of(kEach), later = buffer_of(kEach);
  later.values.copy_(both.values.narrow(0, kEach, kEach));
  const auto of_first = MakeOptimizer(OfType(), {first}, {{parameter(first, "0.weight", 0)}});
  const auto of_later = MakeOptimizer(OfType(), {later}, {{parameter(later, "1.weight", 0)}});
  std::unique_ptr<Optimizer> of_both;
  for (int t = 0; t < 6; ++t) {
    if (t == 3) {  // until now the second one was frozen
      both.values.narrow(0, 0, kEach).copy_(first.values);
      const std::vector<PlacedParameter> parameters = {parameter(both, "0.weight", 0),
                                                       parameter(both, "1.weight", kEach)};
      of_both = MakeOptimizer(OfType(), {both}, parameters);
      const auto from = of_first->state(), to = of_both->state();
      for (size_t m = 0; m < from[0].moments.size(); ++m) {
        to[0].moments[m].values.narrow(0, 0, kEach).copy_(from[0].moments[m].values);
      }
      for (size_t f = 0; f < from[0].factors.size(); ++f) {
        to[0].factors[f].values.copy_(from[0].factors[f].values);
      }
      of_both->set_steps_done(3, {{"1.weight", 3}});
    }
    first.gradients.copy_(gradients(t, 0, kEach));
    of_first->Step(1, 2);
    if (!of_both) continue;
    later.gradients.copy_(gradients(t, kEach, kEach));
    of_later->Step(1, 2);
    both.gradients.copy_(gradients(t, 0, 2 * kEach));
    of_both->Step(1, 2);
    EXPECT_TRUE(both.values.narrow(0, 0, kEach).equal(first.values)) << t;
    EXPECT_TRUE(both.values.narrow(0, kEach, kEach).equal(later.values)) << t;
  }
}

TEST_P(OptimizerTypeTest, KeepsAsManyMomentsAsItSays) {
  const OptimizerSpec spec = OfType();
  const auto states = Make(spec, Buffer())->state();
  EXPECT_EQ(states[0].moments.size(), static_cast<size_t>(CountMoments(spec)));
}

std::vector<std::string> AllTypes() {
  std::vector<std::string> names;
  for (const OptionTable& type : OptimizerTypes()) names.push_back(type.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerTypeTest, testing::ValuesIn(AllTypes()),
                         [](const auto& info) { return info.param; });

/// Elementwise rules run on pieces. Neither the bounds of pieces nor those of buffers change bits.
TEST(OptimizerPieces, AreAsTheWhole) {
  const auto run = [](int64_t from, int64_t count) {
    FlatBuffer buffer{-1, at::zeros({40000}), at::zeros({40000})};
    for (int i = 0; i < 40000; ++i) {
      buffer.values.data_ptr<float>()[i] = static_cast<float>(std::sin(0.7 * i));
      buffer.gradients.data_ptr<float>()[i] = static_cast<float>(std::cos(0.3 * i));
    }
    buffer.values = buffer.values.narrow(0, from, count);
    buffer.gradients = buffer.gradients.narrow(0, from, count);
    const auto optimizer = MakeOptimizer(Spec("nadam"), {buffer});
    for (int t = 0; t < 3; ++t) optimizer->Step(1, 1);
    return buffer.values.clone();
  };
  EXPECT_TRUE(run(0, 40000).narrow(0, 16000, 16).equal(run(16000, 16)));
  EXPECT_TRUE(run(0, 40000).narrow(0, 16384, 23616).equal(run(16384, 23616)));
}

TEST(Averages, AreTheValuesAtFirstAndThenFollow) {
  OptimizerSpec spec = Sgd({});
  spec.ema = 0.75;
  FlatBuffer buffer = Buffer();
  const auto optimizer = MakeOptimizer(spec, {buffer});
  at::Tensor expected;
  for (int t = 0; t < 3; ++t) {
    SetGradients(buffer, t);
    optimizer->Step(1, 1);
    expected = t == 0 ? buffer.values.clone() : expected * 0.75 + buffer.values * 0.25;
  }
  const at::Tensor values = buffer.values.clone();
  optimizer->SwapAverages();
  EXPECT_TRUE(buffer.values.allclose(expected, 1e-6, 1e-7));
  EXPECT_FALSE(buffer.values.equal(values));
  optimizer->SwapAverages();
  EXPECT_TRUE(buffer.values.equal(values));
}

/// A step of a thousandth is less than bf16 can represent. Evaluations use rounded averages, but do
/// not change the averages.
TEST(Averages, OfBf16AreInFloat32) {
  OptimizerSpec spec = Sgd({});
  spec.ema = 0.999;
  FlatBuffer buffer = {-1, at::ones({kElements}, at::kBFloat16), at::ones({kElements})};
  buffer.gradients = buffer.gradients.to(at::kBFloat16);
  const auto optimizer = MakeOptimizer(spec, {buffer});
  const at::Tensor average = optimizer->state()[0].moments.back().values;
  ASSERT_EQ(average.scalar_type(), at::kFloat);
  at::Tensor expected;
  for (int t = 0; t < 8; ++t) {
    buffer.gradients.fill_(1);
    optimizer->Step(1, 1);
    const at::Tensor values = buffer.values.clone(), wide = values.to(at::kFloat);
    expected = t == 0 ? wide : expected * 0.999 + wide * 0.001;
    const at::Tensor before = average.clone();
    optimizer->SwapAverages();
    EXPECT_TRUE(buffer.values.equal(before.to(at::kBFloat16)));
    optimizer->SwapAverages();
    EXPECT_TRUE(buffer.values.equal(values));
    EXPECT_TRUE(average.equal(before));
  }
  EXPECT_TRUE(average.allclose(expected, 1e-6, 1e-7));
}

/// With bf16 parameters the conversion to Muon's compute type makes no copy.
TEST(Muon, KeepsTheMomentumInBf16) {
  FlatBuffer buffer = Buffer();
  buffer.values = buffer.values.to(at::kBFloat16);
  buffer.gradients = at::ones({kElements}, at::kBFloat16);
  const std::vector<PlacedParameter> parameters = {Parameter(buffer, {4, 5})};
  const auto optimizer =
      MakeOptimizer(Spec("muon", {{"momentum", 0.5}, {"nesterov", false}}), {buffer}, parameters);
  for (const double expected : {0.5, 0.75}) {
    optimizer->Step(1, 1);
    const at::Tensor momentum = optimizer->state()[0].moments[0].values;
    EXPECT_TRUE(momentum.eq(expected).all().item<bool>()) << expected;
  }
}

TEST(OptimizerGroupTest, EachBufferHasItsGroupsOptions) {
  OptimizerSpec spec = Sgd({});
  spec.groups.push_back({{}, "bias", Value::MakeMap({{"lr", 0.0}})});
  FlatBuffer rest = Buffer(), frozen_rate = Buffer();
  frozen_rate.group = 0;
  const auto optimizer = MakeOptimizer(spec, {rest, frozen_rate});
  SetGradients(rest, 0);
  SetGradients(frozen_rate, 0);
  optimizer->Step(1, 1);
  EXPECT_TRUE(frozen_rate.values.equal(Buffer().values));
  EXPECT_FALSE(rest.values.equal(Buffer().values));
}

TEST(OptimizerGroupTest, AnUnknownTypeNamesTheNearest) {
  try {
    MakeRule("adamx", {});
    ADD_FAILURE() << "expected a ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean \"adam"));
  }
}

TEST(ClipFactorTest, IsPyTorchs) {
  EXPECT_EQ(ClipFactor(0, 100), 1);
  EXPECT_EQ(ClipFactor(1, 0.5), 1);
  EXPECT_DOUBLE_EQ(ClipFactor(1, 4), 1 / (4 + 1e-6));
}

}  // namespace
}  // namespace strata
