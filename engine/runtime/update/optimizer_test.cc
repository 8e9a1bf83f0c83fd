#include "engine/runtime/update/optimizer.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"

namespace strata {
namespace {

constexpr int kElements = 20;

/// A buffer as the reference has it: parameter i is sin(0.7 i).
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

OptimizerSpec Sgd(Value::Map options) {
  OptimizerSpec spec{"sgd",
                     Value::MakeMap({{"lr", 0.1},
                                     {"momentum", 0.0},
                                     {"dampening", 0.0},
                                     {"weight_decay", 0.0},
                                     {"nesterov", false}}),
                     {}};
  for (const auto& [name, value] : options) spec.options.Set(name, value);
  return spec;
}

OptimizerSpec Adam(const std::string& type, Value::Map options) {
  OptimizerSpec spec{type,
                     Value::MakeMap({{"lr", 0.01},
                                     {"betas", Value::List{0.9, 0.999}},
                                     {"eps", 1e-8},
                                     {"weight_decay", 0.1},
                                     {"amsgrad", false}}),
                     {}};
  for (const auto& [name, value] : options) spec.options.Set(name, value);
  return spec;
}

struct Case {
  std::string name;
  OptimizerSpec spec;
  std::vector<float> expected;  // elements 0, 4, 8, 12, 16 after five steps
  double tolerance;
};

class OptimizerTest : public testing::TestWithParam<Case> {};

TEST_P(OptimizerTest, EqualsPyTorch) {
  FlatBuffer buffer = Buffer();
  const auto optimizer = MakeOptimizer(GetParam().spec, {buffer});
  for (int t = 0; t < 5; ++t) {
    SetGradients(buffer, t);
    optimizer->Step(1, 1);
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_NEAR(buffer.values[4 * i].item<float>(), GetParam().expected[i], GetParam().tolerance);
  }
}

// Computed by torch.optim of PyTorch 2.11 (foreach=False, fused=False) with the options below.
// SGD is equal bit for bit, the fused Adam within rounding.
INSTANTIATE_TEST_SUITE_P(
    PyTorch, OptimizerTest,
    testing::Values(
        Case{"sgd",
             Sgd({}),
             {0.0429717526f, 0.405582756f, -0.623077452f, 0.789939165f, -1.03422689f},
             0},
        Case{"sgd_momentum",
             Sgd({{"momentum", 0.9}, {"dampening", 0.25}, {"weight_decay", 0.01}}),
             {-0.241788998f, 0.52309227f, -0.243662655f, 0.929508269f, -1.2882756f},
             0},
        Case{"sgd_nesterov",
             Sgd({{"lr", 0.05}, {"momentum", 0.9}, {"nesterov", true}, {"weight_decay", 0.01}}),
             {-0.0621179193f, 0.504532278f, -0.438937545f, 0.810607016f, -1.18466341f},
             0},
        Case{"adam",
             Adam("adam", {}),
             {-0.0185020175f, 0.341211677f, -0.600125492f, 0.860290349f, -0.988846183f},
             3e-7},
        Case{"adam_amsgrad",
             Adam("adam", {{"betas", Value::List{0.8, 0.9}},
                           {"eps", 1e-6},
                           {"amsgrad", true},
                           {"weight_decay", 0.0}}),
             {-0.0153627768f, 0.343287587f, -0.605153739f, 0.861373365f, -1.01106036f},
             3e-7},
        Case{"adamw",
             Adam("adamw", {}),
             {-0.0184829105f, 0.341266572f, -0.598852336f, 0.860090375f, -1.0075587f},
             3e-7}),
    [](const auto& info) { return info.param.name; });

class OptimizerTypeTest : public testing::TestWithParam<std::string> {
 protected:
  static OptimizerSpec Spec() {
    return GetParam() == "sgd" ? Sgd({{"momentum", 0.9}}) : Adam(GetParam(), {});
  }
};

TEST_P(OptimizerTypeTest, DividesTheGradientsOnce) {
  FlatBuffer plain = Buffer(), divided = Buffer();
  const auto of_plain = MakeOptimizer(Spec(), {plain});
  const auto of_divided = MakeOptimizer(Spec(), {divided});
  for (int t = 0; t < 3; ++t) {
    SetGradients(plain, t);
    SetGradients(divided, t, 4);  // a power of two: no rounding
    of_plain->Step(1, 1);
    of_divided->Step(1, 4);
    EXPECT_TRUE(divided.gradients.equal(plain.gradients));
  }
  EXPECT_TRUE(divided.values.equal(plain.values));
}

TEST_P(OptimizerTypeTest, PaddingStaysZero) {
  FlatBuffer buffer{-1, at::zeros({32}), at::zeros({32})};
  buffer.values.narrow(0, 0, 5).fill_(1);
  const auto optimizer = MakeOptimizer(Spec(), {buffer});
  for (int t = 0; t < 3; ++t) {
    buffer.gradients.narrow(0, 0, 5).fill_(0.5);
    optimizer->Step(1, 3);
  }
  EXPECT_TRUE(buffer.values.narrow(0, 5, 27).equal(at::zeros({27})));
}

TEST_P(OptimizerTypeTest, TheFactorMultipliesTheRate) {
  FlatBuffer a = Buffer(), b = Buffer();
  OptimizerSpec half = Spec();
  half.options.Set("lr", half.options["lr"].as_double() / 2);
  const auto of_a = MakeOptimizer(Spec(), {a});
  const auto of_b = MakeOptimizer(half, {b});
  SetGradients(a, 0);
  SetGradients(b, 0);
  of_a->Step(0.5, 1);
  of_b->Step(1, 1);
  EXPECT_TRUE(a.values.equal(b.values));
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerTypeTest, testing::Values("sgd", "adam", "adamw"));

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
    MakeOptimizer({"adamx", {}, {}}, {Buffer()});
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
