// Counts what a step launches on the shadow device, by kernel, for the networks that are compared
// with PyTorch (tools/gpu_check): their layers in their number, but narrow. Sizes do not change the
// count. Two things take more launches here than on CUDA: attention with dropout, which is fused
// there, and weight gradients in half precision, a product and a sum here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "tests/shadow/own_launcher.h"
#include "tests/shadow/training.h"

namespace strata::shadow {
namespace {

using testing::Make;
using testing::MapOf;
using Layers = std::vector<LayerSpec>;

LayerSpec Residual(Layers body) { return MakeLayer("Residual", {}, {}, std::move(body), ""); }

/// models/gpt2.lua, with an Embedding for its tables of the script.
Layers Gpt2(double dropout) {
  constexpr int kDim = 16;
  Layers layers = {Make("Embedding", {96, kDim}), Make("Dropout", {dropout})};
  const Value::Map attention = {{"dropout", dropout}, {"batch_first", true}, {"causal", true}};
  for (int i = 0; i < 12; ++i) {
    layers.push_back(
        Residual({Make("LayerNorm", {kDim}), Make("MultiheadAttention", {kDim, 4}, attention),
                  Make("Dropout", {dropout})}));
    layers.push_back(Residual({Make("LayerNorm", {kDim}), Make("Linear", {kDim, 4 * kDim}),
                               Make("GELU", {}, {{"approximate", "tanh"}}),
                               Make("Linear", {4 * kDim, kDim}), Make("Dropout", {dropout})}));
  }
  layers.push_back(Make("LayerNorm", {kDim}));
  layers.push_back(Make("Linear", {kDim, 96}, {{"bias", false}}));
  return layers;
}

/// models/llama.lua --variant=1b.
Layers Llama(double) {
  constexpr int kDim = 32;
  Layers layers = {Make("Embedding", {96, kDim})};
  const Value::Map heads = {{"num_kv_heads", 2}, {"rope_theta", 10000.0}};
  for (int i = 0; i < 22; ++i) {
    layers.push_back(
        Residual({Make("RMSNorm", {kDim}), Make("GroupedQueryAttention", {kDim, 4}, heads)}));
    layers.push_back(Residual({Make("RMSNorm", {kDim}), Make("SwiGLU", {kDim, 48})}));
  }
  layers.push_back(Make("RMSNorm", {kDim}));
  layers.push_back(Make("Linear", {kDim, 96}, {{"bias", false}}));
  return layers;
}

/// models/transformer.lua.
Layers Transformer(double dropout) {
  Layers layers = {Make("Embedding", {96, 16})};
  for (int i = 0; i < 8; ++i) {
    layers.push_back(
        Make("TransformerDecoderLayer", {16, 4}, {{"dim_feedforward", 24}, {"dropout", dropout}}));
  }
  layers.push_back(Make("LayerNorm", {16}));
  layers.push_back(Make("Linear", {16, 96}));
  return layers;
}

/// models/resnet.lua --depth=50.
Layers Resnet50(double) {
  Layers layers;
  const auto convolution = [&](int from, int to, int size, int stride) {
    layers.push_back(Make("Conv2d", {from, to, size},
                          {{"stride", stride}, {"padding", (size - 1) / 2}, {"bias", false}}));
    layers.push_back(Make("BatchNorm2d", {to}));
  };
  constexpr int kWidth = 4, kBlocks[] = {3, 4, 6, 3};
  convolution(1, kWidth, 7, 2);
  layers.push_back(Make("ReLU"));
  layers.push_back(Make("MaxPool2d", {3}, {{"stride", 2}, {"padding", 1}}));
  int from = kWidth;
  for (int group = 0; group < 4; ++group) {
    for (int i = 0; i < kBlocks[group]; ++i) {
      const int inside = kWidth << group, to = 4 * inside;
      const int stride = group > 0 && i == 0 ? 2 : 1;
      const std::string name = "s" + std::to_string(group) + "_" + std::to_string(i);
      if (from != to || stride != 1) {
        layers.push_back(Make("skip", {name + "i"}));
        convolution(from, to, 1, stride);
        layers.push_back(Make("skip", {name}));
        layers.push_back(Make("join", {name + "i"}, {{"how", "pass"}}));
        layers.push_back(testing::ScriptedLayer(kSecondOfTwo));
      } else {
        layers.push_back(Make("skip", {name}));
      }
      convolution(from, inside, 1, 1);
      layers.push_back(Make("ReLU"));
      convolution(inside, inside, 3, stride);
      layers.push_back(Make("ReLU"));
      convolution(inside, to, 1, 1);
      layers.push_back(Make("join", {name}));
      layers.push_back(Make("ReLU"));
      from = to;
    }
  }
  layers.push_back(Make("AdaptiveAvgPool2d", {1}));
  layers.push_back(Make("Flatten"));
  layers.push_back(Make("Linear", {from, 5}));
  return layers;
}

struct Network {
  const char* name;
  const char* model;  ///< whose data it takes
  Layers (*layers)(double dropout);
  double dropout;
  Value::Map keys;
  int64_t most;  ///< launches of a step in bf16
};
void PrintTo(const Network& network, std::ostream* out) { *out << network.name; }

/// Kernels of a step in bf16, the most frequent ones first.
std::string TableOf(const std::map<std::string, int64_t>& kernels) {
  std::vector<std::pair<int64_t, std::string>> rows;
  for (const auto& [kernel, launches] : kernels) rows.emplace_back(-launches, kernel);
  std::ranges::sort(rows);
  std::string table;
  for (const auto& [launches, kernel] : rows) table += Str("  ", -launches, " ", kernel, "\n");
  return table;
}

class LaunchesTest : public ::testing::TestWithParam<Network> {};

TEST_P(LaunchesTest, OfAStep) {
  const Network& network = GetParam();
  Value::Map more = network.keys;
  more.emplace_back("batch", MapOf({{"micro_batches", 1}, {"micro_batch_size", 8}}));
  more.emplace_back("precision", MapOf({{"1", "bf16"}}));
  const Launcher launcher;
  Machine::Get().Reset();
  const Outcome outcome =
      Train({network.model, "1f1b", 1, 1, 1, more, network.layers(network.dropout)}, "shadow");
  constexpr int kSteps = 2;
  int64_t launches = 0;
  std::map<std::string, int64_t> kernels;
  for (const auto& [doing, counts] : outcome.counts) {
    launches += counts.launches / kSteps;
    for (const auto& [kernel, count] : counts.kernels) kernels[kernel] += count / kSteps;
  }
  std::printf("%s: %ld launches\n%s", network.name, launches, TableOf(kernels).c_str());
  EXPECT_LE(launches, network.most);
}

const Value::Map kAdam = {{"clip", 1.0}};
const Value::Map kSgd = {{"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.1}, {"momentum", 0.9}})}};
INSTANTIATE_TEST_SUITE_P(
    Of, LaunchesTest,
    ::testing::Values(Network{"GPT-2 without dropout", "tokens", Gpt2, 0, kAdam, 411},
                      Network{"Transformer without dropout", "tokens", Transformer, 0, {}, 495},
                      Network{"GPT-2", "tokens", Gpt2, 0.1, kAdam, 857},
                      Network{"Llama 1.1B", "tokens", Llama, 0, kAdam, 853},
                      Network{"Transformer", "tokens", Transformer, 0.1, {}, 911},
                      Network{"ResNet-50", "images", Resnet50, 0, kSgd, 804}),
    [](const auto& network) {
      std::string name = network.param.name;
      std::erase_if(name, [](char c) { return !std::isalnum(c); });
      return name;
    });

}  // namespace
}  // namespace strata::shadow
