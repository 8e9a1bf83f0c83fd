// Layers that share parameters, on one stage, on several, and with replicas.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/runtime/testing_job.h"

namespace strata {
namespace {

const WithGradientBlocks kSmallBlocks(256);

using ::testing::AllOf;
using testing::FakeScript;
using ::testing::HasSubstr;
using testing::Make;
using testing::MapOf;

at::Tensor Tokens(int64_t offset) {
  return at::arange(4 * 10).mul(7919).add(104729 * offset).remainder(64).view({4, 10});
}

LayerSpec Tied(LayerSpec layer, const std::string& key,
               std::vector<std::string> weights = {"weight"}) {
  layer.tied_key = key;
  layer.tied_weights = std::move(weights);
  return layer;
}

/// The model tied_lm of parity.json.
std::vector<LayerSpec> TiedLm() {
  std::vector<LayerSpec> layers = {Tied(Make("Embedding", {64, 16}), "embed")};
  for (int block = 0; block < 3; ++block) {
    layers.push_back(Make("Linear", {16, 64}));
    layers.push_back(Make("GELU"));
    layers.push_back(Make("Linear", {64, 16}));
    layers.push_back(Make("LayerNorm", {16}));
  }
  layers.push_back(Tied(Make("Embedding", {64, 16}), "embed"));
  layers.back().tied_forward = {1, "net.lua:9", "digest"};
  return layers;
}

Job MakeJob(const std::vector<LayerSpec>& layers, int pipe, const Value::Map& more = {}) {
  const Value::Map keys = {
      {"input", MapOf({{"shape", Value::IntList({10})}, {"dtype", "int64"}})},
      {"parallel", MapOf({{"pipe", pipe}})},
      {"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 4}})},
      {"data", MapOf({{"train", testing::Function(2)}})},
      {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.05}, {"momentum", 0.9}, {"weight_decay", 1e-4}})},
      {"tie_check", 1},
      {"steps", 6}};
  return testing::MakeJob(layers, Make("CrossEntropyLoss"), testing::With(keys, more));
}

FakeScript Script() {
  FakeScript script;
  script.data[2] = [](int64_t i) { return MicroBatch{{Tokens(i)}, {Tokens(i + 1)}}; };
  script.layers[1] = [](testing::FunctionLayer& layer, const Tensors& x, const Pass&) {
    return Tensors{x[0].matmul(layer.weight().t())};
  };
  script.infer = [](const TensorSpecs& x) {
    return TensorSpecs{{{x[0].shape[0], 10, 64}, DType::kFloat32}};
  };
  return script;
}

struct Training {
  std::vector<StepResult> steps;
  std::vector<TensorDigest> parameters;
};

Training Train(const Job& job) {
  FakeScript script = Script();
  const auto engine = testing::Start(job, script);
  engine->set_record_gradients(true);
  Training run;
  for (int64_t step = 0; step < job.steps; ++step) run.steps.push_back(engine->TrainStep());
  run.parameters = engine->Parameters();
  engine->Close();
  return run;
}

void ExpectEqual(const Training& run, const Training& other) {
  ASSERT_EQ(run.steps.size(), other.steps.size());
  for (size_t step = 0; step < run.steps.size(); ++step) {
    EXPECT_EQ(run.steps[step].loss, other.steps[step].loss) << step;
    EXPECT_EQ(run.steps[step].grad_norm, other.steps[step].grad_norm) << step;
    ASSERT_EQ(run.steps[step].gradients.size(), other.steps[step].gradients.size());
    for (size_t i = 0; i < run.steps[step].gradients.size(); ++i) {
      EXPECT_EQ(run.steps[step].gradients[i].digest, other.steps[step].gradients[i].digest)
          << run.steps[step].gradients[i].path << " in step " << step;
    }
  }
  ASSERT_EQ(run.parameters.size(), other.parameters.size());
  for (size_t i = 0; i < run.parameters.size(); ++i) {
    EXPECT_EQ(run.parameters[i].digest, other.parameters[i].digest) << run.parameters[i].path;
  }
}

TEST(TiesTest, TheGoldenRunIsMetWithTheSameBitsOnAnyNumberOfStages) {
  const nlohmann::json golden = Golden("parity");
  const auto expected = std::ranges::find(golden["runs"], "tied_lm",
                                          [](const nlohmann::json& run) { return run["name"]; });
  const Training one = Train(MakeJob(TiedLm(), 1));
  for (size_t step = 0; step < one.steps.size(); ++step) {
    const double loss = (*expected)["steps"][step]["loss"];
    const double norm = (*expected)["steps"][step]["grad_norm"];
    EXPECT_NEAR(one.steps[step].loss, loss, 1e-5 * loss) << step;
    EXPECT_NEAR(one.steps[step].grad_norm, norm, 1e-5 * norm) << step;
  }
  EXPECT_EQ(one.parameters.size(), 1u + 3 * 6);  // the tied one is listed once
  for (int pipe = 2; pipe <= 6; ++pipe) {
    SCOPED_TRACE(pipe);
    ExpectEqual(Train(MakeJob(TiedLm(), pipe)), one);
  }
}

/// Two keys with four uses, one key with two tensors. They cross each other and meet on stages.
std::vector<LayerSpec> Crossing() {
  const LayerSpec square = Make("Linear", {16, 16});
  return {Make("Embedding", {64, 16}),
          Tied(square, "b", {"weight", "bias"}),
          Tied(square, "a"),
          Make("Tanh"),
          Tied(square, "b", {"weight", "bias"}),
          Tied(square, "a"),
          Make("Tanh"),
          Tied(square, "b", {"weight", "bias"}),
          Tied(square, "a"),
          Make("Linear", {16, 64})};
}

TEST(TiesTest, SeveralKeysTensorsAndUses) {
  const Training one = Train(MakeJob(Crossing(), 1));
  EXPECT_EQ(one.parameters.size(), 1u + 2 + 2 + 1 + 1 + 2);  // a's biases are not shared
  EXPECT_LT(one.steps.back().loss, one.steps.front().loss);
  for (const int pipe : {2, 3, 5, 10}) {
    SCOPED_TRACE(pipe);
    ExpectEqual(Train(MakeJob(Crossing(), pipe, {{"partition", "uniform"}})), one);
  }
}

// Without ties the two types of layers would have different initial values.
TEST(TiesTest, EveryUseBeginsWithTheValuesOfTheFirst) {
  const std::vector<LayerSpec> layers = {
      Tied(Make("Embedding", {64, 16}), "embed"), Make("Tanh"),
      Tied(Make("Linear", {16, 64}, {{"bias", false}}), "embed")};
  const Training one = Train(MakeJob(layers, 1));
  for (const int pipe : {2, 3}) {
    SCOPED_TRACE(pipe);
    ExpectEqual(Train(MakeJob(layers, pipe, {{"partition", "uniform"}})), one);
  }
}

TEST(TiesTest, TheTotalCountsThemOnce) {
  FakeScript script = Script();
  const Plan plan = MakePlan(MakeJob(TiedLm(), 2), {}, &script);
  EXPECT_EQ(plan.parameters, 7504);
  EXPECT_EQ(plan.layers[0].parameters, 1024);
  EXPECT_EQ(plan.layers[13].parameters, 1024);
  EXPECT_THAT(plan.tied_stages(), ::testing::ElementsAre(0, 1));
}

TEST(TiesTest, ReplicasAndShardedStateAgree) {
  const auto grid = [](int pipe, int data, int zero) {
    return Train(MakeJob(TiedLm(), 1,
                         {{"parallel", MapOf({{"pipe", pipe}, {"data", data}})},
                          {"batch", MapOf({{"micro_batches", 4 / data}, {"micro_batch_size", 4}})},
                          {"zero", zero}}));
  };
  const Training one = grid(1, 1, 0), whole = grid(2, 2, 0);
  for (size_t step = 0; step < one.steps.size(); ++step) {
    EXPECT_NEAR(whole.steps[step].loss, one.steps[step].loss, 1e-5);
    EXPECT_NEAR(whole.steps[step].grad_norm, one.steps[step].grad_norm,
                1e-5 * one.steps[step].grad_norm);
  }
  for (const int zero : {1, 2}) {
    for (const int pipe : {2, 3}) ExpectEqual(grid(pipe, 2, zero), whole);
  }
}

TEST(TiesTest, FrozenOnesStay) {
  const Value freeze = Value::List{"type:Embedding"};
  const Training one = Train(MakeJob(TiedLm(), 1, {{"freeze", freeze}}));
  EXPECT_EQ(one.steps[0].gradients.size(), 3u * 6);
  const Training two = Train(MakeJob(TiedLm(), 4, {{"freeze", freeze}}));
  ExpectEqual(two, one);
  const Training before = Train(MakeJob(TiedLm(), 1, {{"freeze", freeze}, {"steps", 1}}));
  EXPECT_EQ(before.parameters[0].digest, one.parameters[0].digest);
}

TEST(TiesTest, CopiesThatDifferAreFound) {
  FakeScript script = Script();
  std::atomic<bool> damage = false;
  const auto forward = script.layers[1];
  script.layers[1] = [&](testing::FunctionLayer& layer, const Tensors& x, const Pass& pass) {
    if (damage) layer.weight().detach().select(0, 5).add_(1);
    return forward(layer, x, pass);
  };
  const auto engine = testing::Start(MakeJob(TiedLm(), 3), script);
  engine->TrainStep();
  damage = true;
  engine->TrainStep();
  EXPECT_THAT(ErrorOf([&] { engine->TrainStep(); }),
              AllOf(HasSubstr("strata.tied{\"embed\"} are no longer equal"),
                    HasSubstr("rank 0 has "), HasSubstr("rank 2 has ")));
}

}  // namespace
}  // namespace strata
