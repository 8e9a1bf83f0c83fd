// Compares the engine with PyTorch: the first two runs of tests/golden/parity.json, for every
// number of stages, in threads.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/testing.h"
#include "engine/runtime/testing_job.h"

namespace strata {
namespace {

using testing::Make;
using testing::MapOf;

/// The input that parity.json describes under "data". `offset`: the global number of the
/// micro-batch.
at::Tensor Image(int64_t offset) {
  const at::Tensor i = at::arange(8 * 64, at::kDouble).add(offset);
  return i.mul(0.37).sin().add(i.mul(0.0113).cos()).to(at::kFloat).view({8, 1, 8, 8});
}

at::Tensor Labels(int64_t offset) { return at::arange(8).mul(7).add(3 * offset).remainder(10); }

at::Tensor Tokens(int64_t offset) {
  return at::arange(4 * 12).mul(7919).add(104729 * offset).remainder(100).view({4, 12});
}

Job Lenet(int pipe) {
  const LayerSpec relu = Make("ReLU"), pool = Make("MaxPool2d", {2});
  return testing::MakeJob(
      {Make("Conv2d", {1, 16, 3}, {{"padding", 1}}), relu, pool,
       Make("Conv2d", {16, 32, 3}, {{"padding", 1}}), relu, pool, Make("Flatten"),
       Make("Linear", {128, 64}), relu, Make("Linear", {64, 10})},
      Make("CrossEntropyLoss"),
      {{"input", MapOf({{"shape", Value::IntList({1, 8, 8})}})},
       {"parallel", MapOf({{"pipe", pipe}})},
       {"data", MapOf({{"train", testing::Function(1)}})},
       {"optimizer",
        MapOf({{"1", "sgd"}, {"lr", 0.05}, {"momentum", 0.9}, {"weight_decay", 1e-4}})},
       {"steps", 6}});
}

Job Decoder(int pipe) {
  const LayerSpec block = Make("TransformerDecoderLayer", {32, 4, 64, 0.0});
  return testing::MakeJob(
      {Make("Embedding", {100, 32}), block, block, block, block, Make("LayerNorm", {32}),
       Make("Linear", {32, 100})},
      Make("CrossEntropyLoss"),
      {{"input", MapOf({{"shape", Value::IntList({12})}, {"dtype", "int64"}})},
       {"parallel", MapOf({{"pipe", pipe}})},
       {"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 4}})},
       {"data", MapOf({{"train", testing::Function(2)}})},
       {"optimizer", MapOf({{"1", "adamw"}, {"lr", 1e-3}, {"weight_decay", 0.01}})},
       {"steps", 6}});
}

struct Case {
  const char* name;
  Job (*job)(int pipe);
};

class ParityTest : public ::testing::TestWithParam<std::tuple<Case, int>> {};

TEST_P(ParityTest, LossAndNormAreWithin1e5) {
  const auto& [run, pipe] = GetParam();
  testing::FakeScript script;
  script.data[1] = [](int64_t i) { return MicroBatch{{Image(i)}, {Labels(i)}}; };
  script.data[2] = [](int64_t i) { return MicroBatch{{Tokens(i)}, {Tokens(i + 1)}}; };
  const auto engine = testing::Start(run.job(pipe), script);
  const nlohmann::json golden = Golden("parity");
  const auto expected = std::ranges::find(golden["runs"], run.name,
                                          [](const nlohmann::json& r) { return r["name"]; });
  for (const auto& step : (*expected)["steps"]) {
    const StepResult result = engine->TrainStep();
    const double loss = step["loss"], norm = step["grad_norm"];
    EXPECT_NEAR(result.loss, loss, 1e-5 * loss) << "step " << result.step;
    EXPECT_NEAR(result.grad_norm, norm, 1e-5 * norm) << "step " << result.step;
  }
  engine->Close();
}

INSTANTIATE_TEST_SUITE_P(Golden, ParityTest,
                         ::testing::Combine(::testing::Values(Case{"lenet_8x8", Lenet},
                                                              Case{"decoder_small", Decoder}),
                                            ::testing::Values(1, 2, 3)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_pipe" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace strata
