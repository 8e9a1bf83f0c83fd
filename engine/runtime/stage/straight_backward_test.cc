#include "engine/runtime/stage/straight_backward.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace strata {
namespace {

using torch::autograd::Edge;
using torch::autograd::impl::gradient_edge;

/// The input x and the weight of the network.
using Leaves = std::vector<at::Tensor>;
using Network = std::function<at::Tensor(const Leaves&)>;

Leaves MakeLeaves() {
  const at::Tensor x = at::arange(12, at::kFloat).mul(0.7).sin().view({3, 4});
  const at::Tensor weight = at::arange(16, at::kFloat).mul(0.3).cos().view({4, 4});
  return {x.requires_grad_(true), weight.requires_grad_(true)};
}

at::Tensor GradientOf(const at::Tensor& output) {
  return at::arange(output.numel(), at::kFloat).mul(0.9).cos().view(output.sizes());
}

void RunEngine(const Edge& root, const at::Tensor& gradient) {
  torch::autograd::Engine::get_default_engine().execute({root}, {gradient}, false, false, true);
}

/// The gradients of the leaves, accumulated over two backwards.
Leaves Gradients(const Network& network, bool straight) {
  const Leaves leaves = MakeLeaves();
  for (int i = 0; i < 2; ++i) {
    const at::Tensor output = network(leaves);
    const Edge root = gradient_edge(output);
    if (straight) {
      EXPECT_TRUE(RunStraightBackward(root, GradientOf(output)));
    } else {
      RunEngine(root, GradientOf(output));
    }
  }
  return {leaves[0].grad(), leaves[1].grad()};
}

struct Case {
  const char* name;
  Network network;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class StraightTest : public ::testing::TestWithParam<Case> {};

TEST_P(StraightTest, HasTheBitsOfTheEngine) {
  const Leaves expected = Gradients(GetParam().network, false);
  const Leaves got = Gradients(GetParam().network, true);
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(expected[i].defined(), got[i].defined()) << i;
    if (!expected[i].defined()) continue;
    EXPECT_TRUE(at::equal(expected[i], got[i])) << i;
    EXPECT_EQ(expected[i].strides(), got[i].strides()) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Networks, StraightTest,
    ::testing::Values(
        Case{"line", [](const Leaves& x) { return x[0].mm(x[1]).relu().tanh().sum(); }},
        Case{"a leaf alone", [](const Leaves& x) { return x[0]; }},
        Case{"a leaf that gets no gradient",
             [](const Leaves& x) { return x[0].mm(x[1].detach()).sigmoid(); }},
        Case{"broadcasting", [](const Leaves& x) { return (x[0].narrow(0, 0, 1) + x[1]).exp(); }},
        Case{"views and overwriting",
             [](const Leaves& x) {
               return x[0].mm(x[1]).view({2, 6}).t().mul_(2).relu_();
             }},
        Case{"a node of several outputs",
             [](const Leaves& x) {
               return x[0].mm(x[1]).split_with_sizes({1, 2})[1].exp();
             }},
        Case{"other types",
             [](const Leaves& x) { return x[0].to(at::kDouble).mul(3).to(at::kFloat).mm(x[1]); }}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::ranges::replace(name, ' ', '_');
      return name;
    });

/// Expects that the graph is refused and untouched, so that the engine can still run it.
void ExpectRefused(const at::Tensor& output, const Leaves& leaves) {
  EXPECT_FALSE(RunStraightBackward(gradient_edge(output), GradientOf(output)));
  for (const at::Tensor& leaf : leaves) EXPECT_FALSE(leaf.grad().defined());
  RunEngine(gradient_edge(output), GradientOf(output));
  EXPECT_TRUE(leaves[0].grad().defined());
}

TEST(StraightBackwardTest, WhatIsNoLineIsRefused) {
  const std::vector<Network> networks = {
      [](const Leaves& x) { return x[0].mm(x[1]).relu() + x[0].tanh(); },  // a fork
      [](const Leaves& x) { return x[0].mm(x[1]).mm(x[1]); },              // a leaf used twice
      [](const Leaves& x) {
        const auto y = x[0].mm(x[1]);
        return y * y;
      },  // twice to one node
  };
  for (const Network& network : networks) {
    const Leaves leaves = MakeLeaves();
    ExpectRefused(network(leaves), leaves);
  }
}

TEST(StraightBackwardTest, HooksAreLeftToTheEngine) {
  int calls = 0;
  const auto count = [&calls](const at::Tensor& gradient) {
    ++calls;
    return gradient;
  };
  const Leaves hooked = MakeLeaves();
  hooked[1].register_hook(count);
  ExpectRefused(hooked[0].mm(hooked[1]), hooked);
  const Leaves leaves = MakeLeaves();
  const at::Tensor middle = leaves[0].mm(leaves[1]);
  middle.register_hook(count);
  ExpectRefused(middle.relu(), leaves);
  EXPECT_EQ(calls, 2);
}

TEST(StraightBackwardTest, FreesWhatTheNodesSaved) {
  const Leaves leaves = MakeLeaves();
  const at::Tensor output = leaves[0].mm(leaves[1]).tanh();
  const Edge root = gradient_edge(output);
  EXPECT_TRUE(RunStraightBackward(root, GradientOf(output)));
  EXPECT_THROW(RunStraightBackward(root, GradientOf(output)), c10::Error);
}

TEST(StraightBackwardTest, AGradientOfAnotherShapeIsAnError) {
  const Leaves leaves = MakeLeaves();
  const Edge root = gradient_edge(leaves[0].mm(leaves[1]));
  EXPECT_THROW(RunStraightBackward(root, at::ones({5, 5})), c10::Error);
}

TEST(StraightBackwardTest, NothingIsRecorded) {
  const Leaves leaves = MakeLeaves();
  const at::Tensor output = leaves[0].mm(leaves[1]).tanh();
  EXPECT_TRUE(RunStraightBackward(gradient_edge(output), GradientOf(output)));
  EXPECT_FALSE(leaves[0].grad().requires_grad());
  EXPECT_TRUE(at::GradMode::is_enabled());
}

}  // namespace
}  // namespace strata
