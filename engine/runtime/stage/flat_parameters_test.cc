#include "engine/runtime/stage/flat_parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <tuple>

#include "engine/runtime/testing.h"

namespace strata {
namespace {

using testing::FunctionLayer;
using testing::Make;

std::vector<StageLayer> Layers(const std::vector<LayerSpec>& specs) {
  std::vector<StageLayer> layers;
  for (const LayerSpec& spec : specs) {
    const int index = static_cast<int>(layers.size()) + 4;
    const RandomScope scope(index);
    layers.push_back({index, std::to_string(index), "layer", BuildLayer(spec, nullptr)});
  }
  return layers;
}

int OneGroup(int, const std::string&) { return -1; }

TEST(FlatParametersTest, ParametersLieInOrderAndPadded) {
  auto layers = Layers({Make("Linear", {3, 5}), Make("ReLU"), Make("Linear", {5, 7})});
  const at::Tensor weight = layers[0].layer->parameters()[0].value.detach().clone();
  FlatParameters flat(layers, OneGroup, at::kCPU);

  ASSERT_EQ(flat.buffers().size(), 1u);
  const at::Tensor& values = flat.buffers()[0].values;
  EXPECT_EQ(values.numel(), 16 + 16 + 48 + 16);
  EXPECT_TRUE(values.narrow(0, 0, 15).equal(weight.flatten()));
  EXPECT_EQ(values[15].item<float>(), 0);

  std::vector<std::string> paths;
  std::vector<int64_t> places;
  for (const PlacedParameter& parameter : flat.parameters()) {
    paths.push_back(parameter.path);
    places.push_back(parameter.value.data_ptr<float>() - values.data_ptr<float>());
    EXPECT_EQ(parameter.gradient.data_ptr<float>() - flat.buffers()[0].gradients.data_ptr<float>(),
              places.back());
  }
  EXPECT_THAT(paths, ::testing::ElementsAre("4.weight", "4.bias", "6.weight", "6.bias"));
  EXPECT_THAT(places, ::testing::ElementsAre(0, 16, 32, 80));
}

TEST(FlatParametersTest, LayersUseTheirPlaces) {
  auto layers = Layers({Make("Linear", {3, 5})});
  FlatParameters flat(layers, OneGroup, at::kCPU);
  Pass pass;
  pass.weight_gradients = std::make_shared<WeightGradients>();
  const Tensors output = layers[0].layer->Forward({at::ones({2, 3})}, pass);
  output[0].sum().backward();
  const PlacedParameter& bias = flat.parameters()[1];
  EXPECT_TRUE(bias.gradient.equal(at::full({5}, 2)));
  EXPECT_TRUE(flat.buffers()[0].gradients.narrow(0, 16, 5).equal(bias.gradient));
  flat.ClearGradients();
  EXPECT_TRUE(bias.gradient.equal(at::zeros({5})));
}

TEST(FlatParametersTest, LargeProductsAreStaleUntilTheyAreOverwrittenOrFinished) {
  auto layers = Layers({Make("Linear", {128, 128}), Make("LayerNorm", {128}),
                        Make("Linear", {128, 16}), Make("Linear", {128, 128})});
  FlatParameters flat(layers, OneGroup, at::kCPU);
  const auto sums = [&] {  // of the gradients of the weights
    std::vector<double> sums;
    for (const PlacedParameter& parameter : flat.parameters()) {
      if (parameter.path.ends_with("bias")) continue;
      sums.push_back(parameter.gradient.sum().item<double>());
    }
    return sums;
  };
  flat.buffers()[0].gradients.fill_(1);
  flat.ClearGradients();
  EXPECT_THAT(sums(), ::testing::ElementsAre(128 * 128, 0, 0, 128 * 128));
  EXPECT_EQ(flat.parameters()[1].gradient.sum().item<double>(), 0) << "a bias";

  Pass pass;
  pass.weight_gradients = std::make_shared<WeightGradients>();
  pass.stale = flat.stale();
  for (int m = 0; m < 2; ++m)
    layers[0].layer->Forward({at::ones({2, 128})}, pass)[0].sum().backward();
  flat.FinishGradients(/*layer=*/6);
  EXPECT_THAT(sums(), ::testing::ElementsAre(2 * 2 * 128 * 128, 0, 0, 0));

  flat.ClearGradients();
  flat.buffers()[0].gradients.fill_(1);
  flat.FinishGradients(/*layer=*/6);
  EXPECT_THAT(sums(), ::testing::ElementsAre(128 * 128, 128, 16 * 128, 0));
  flat.FinishGradients();
  EXPECT_THAT(sums(), ::testing::ElementsAre(0, 128, 16 * 128, 0));
}

/// The weight's gradient after two micro-batches. The previous content of its memory must not
/// matter.
at::Tensor ConvolutionsGradient(int in, int out, int pixels, bool is_stale) {
  auto layers = Layers({Make("Conv2d", {in, out}, {{"kernel_size", 3}, {"padding", 1}})});
  FlatParameters flat(layers, OneGroup, at::kCPU);
  Pass pass;
  pass.weight_gradients = std::make_shared<WeightGradients>();
  if (is_stale) {
    flat.buffers()[0].gradients.fill_(std::numeric_limits<float>::quiet_NaN());
    flat.ClearGradients();
    pass.stale = flat.stale();
  }
  for (int m = 0; m < 2; ++m) {
    const at::Tensor x = at::arange(in * pixels * pixels, at::kFloat).add(m).sin();
    layers[0].layer->Forward({x.view({1, in, pixels, pixels})}, pass)[0].sum().backward();
  }
  flat.FinishGradients();
  return flat.parameters()[0].gradient;
}

TEST(FlatParametersTest, ConvolutionsOverwriteStaleGradients) {
  // For both ways to compute it.
  for (const auto& [in, out, pixels] : {std::tuple(32, 64, 8), {256, 512, 4}}) {
    const at::Tensor added = ConvolutionsGradient(in, out, pixels, /*is_stale=*/false);
    EXPECT_TRUE(added.equal(ConvolutionsGradient(in, out, pixels, /*is_stale=*/true))) << in;
  }
}

TEST(FlatParametersTest, OnlyProductsOfOneLayerAreStale) {
  const auto stale = [](bool only_products, bool is_tied) {
    auto layers = Layers({Make("Linear", {128, 128})});
    layers[0].layer->parameters()[0].only_products &= only_products;
    if (is_tied) layers[0].tied = {{"weight", "tie#0"}};
    FlatParameters flat(layers, OneGroup, at::kCPU);
    flat.buffers()[0].gradients.fill_(1);
    flat.ClearGradients();
    return flat.parameters()[0].gradient.sum().item<double>() != 0;
  };
  EXPECT_TRUE(stale(true, false));
  EXPECT_FALSE(stale(false, false));
  EXPECT_FALSE(stale(true, true));
}

TEST(FlatParametersTest, GroupsAndTypesHaveTheirOwnBuffers) {
  auto layers = Layers({Make("Linear", {3, 5}), Make("Linear", {5, 3})});
  layers.push_back(
      {6, "head", "layer", std::make_unique<FunctionLayer>(nullptr, at::ones({2}, at::kDouble))});
  FlatParameters flat(
      layers, [](int, const std::string& name) { return name == "bias" ? 1 : -1; }, at::kCPU);
  ASSERT_EQ(flat.buffers().size(), 3u);
  EXPECT_EQ(flat.buffers()[0].group, -1);
  EXPECT_EQ(flat.buffers()[0].values.numel(), 32);
  EXPECT_EQ(flat.buffers()[1].group, -1);
  EXPECT_EQ(flat.buffers()[1].values.scalar_type(), at::kDouble);
  EXPECT_EQ(flat.buffers()[2].group, 1);
  EXPECT_EQ(flat.buffers()[2].values.numel(), 32);
  EXPECT_EQ(flat.parameters().back().path, "head.weight");
}

TEST(FlatParametersTest, FrozenOnesStayOutside) {
  auto layers = Layers({Make("Linear", {3, 5}), Make("Linear", {5, 3})});
  for (Parameter& parameter : layers[0].layer->parameters()) parameter.frozen = true;
  FlatParameters flat(layers, OneGroup, at::kCPU);
  EXPECT_EQ(flat.buffers()[0].values.numel(), 32);
  EXPECT_FALSE(flat.parameters()[0].value.requires_grad());
  EXPECT_FALSE(flat.parameters()[0].gradient.defined());
  EXPECT_TRUE(flat.parameters()[2].value.requires_grad());
}

TEST(FlatParametersTest, AChangeOfOneParameterLeavesTheGraphsOfOthersValid) {
  std::vector<StageLayer> layers;
  for (int i = 0; i < 2; ++i) {
    layers.push_back(
        {i, std::to_string(i), "layer", std::make_unique<FunctionLayer>(nullptr, at::ones({2}))});
  }
  FlatParameters flat(layers, OneGroup, at::kCPU);
  const at::Tensor square = flat.parameters()[0].value.square().sum();
  {
    const at::NoGradGuard no_grad;
    flat.parameters()[1].value.add_(1);
  }
  square.backward();
  EXPECT_TRUE(flat.parameters()[0].gradient.equal(at::full({2}, 2)));
}

}  // namespace
}  // namespace strata
