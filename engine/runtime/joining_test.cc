// Joined weight gradients (job.join) against those of each micro-batch: stages, then whole jobs.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"
#include "engine/comm/groups/specs.h"
#include "engine/layers/testing.h"
#include "engine/runtime/testing_job.h"
#include "engine/spec/job/data/data_source.h"
#include "engine/tensors/allocator.h"

namespace strata {
namespace {

using testing::FakeScript;
using testing::FunctionLayer;
using testing::Make;
using testing::MapOf;
using testing::MaxDifference;
using testing::SameBits;

// ---- Stages

constexpr int64_t kRows = 32, kWidth = 1024;
constexpr int64_t kTensor = 4 * kRows * kWidth;

/// One layer in the middle of a pipe, with micro-batches of kRows rows.
struct OneLayer {
  Boundaries boundaries;
  RunSpec run;
  std::unique_ptr<Stage> stage;

  OneLayer(std::unique_ptr<Layer> layer, bool is_joined, int micro_batches)
      : boundaries(3, TensorSpecs{{{kRows, kWidth}, DType::kFloat32}}) {
    StageParts parts;
    parts.stage = 1;
    parts.is_first = false;
    parts.layers.push_back({0, "0", "layer 0", std::move(layer)});
    parts.layers.back().is_joined = is_joined;
    stage = std::make_unique<Stage>(std::move(parts), [](int, const std::string&) { return -1; });
    run.boundaries.assign(static_cast<size_t>(micro_batches), &boundaries);
    stage->Begin(run);
  }

  static at::Tensor Wave(int m) {
    return at::arange(kRows * kWidth, at::kFloat).mul(0.37).add(m).sin().view({kRows, kWidth});
  }
  void Forward(int m) {
    stage->SetInput(m, {Wave(m)});
    stage->Forward(m, Keep::kActivations);
    stage->TakeOutput(m);
    stage->SetOutputGradient(m, {Wave(m + 100)});
  }
  at::Tensor gradient(size_t i) const { return stage->parameters().parameters()[i].gradient; }
};

std::unique_ptr<Layer> Square() {
  const RandomScope scope(5);
  return BuildLayer(Make("Linear", {kWidth, kWidth}), nullptr);
}

class JoinedStageTest : public ::testing::TestWithParam<bool> {
 protected:
  /// One backward, whole or split.
  static void Backward(Stage& stage, int m) {
    if (!GetParam()) return stage.Backward(m);
    stage.BackwardInput(m);
    stage.BackwardWeights(m);
  }
};

TEST_P(JoinedStageTest, AddsTheSameWithin1e6) {
  OneLayer apart(Square(), false, 4), together(Square(), true, 4);
  for (OneLayer* one : {&apart, &together}) {
    for (int m = 0; m < 4; ++m) {
      one->Forward(m);
      Backward(*one->stage, m);
      if (m == 2) one->stage->JoinedWeights();
    }
    EXPECT_EQ(one->stage->has_joined(), one == &together);
    one->stage->JoinedWeights();
    EXPECT_FALSE(one->stage->has_joined());
  }
  for (size_t i = 0; i < 2; ++i) {
    const double largest = apart.gradient(i).abs().max().item<double>();
    EXPECT_GT(largest, 0);
    EXPECT_LE(MaxDifference(apart.gradient(i), together.gradient(i)), 1e-6 * largest) << i;
  }
}

TEST_P(JoinedStageTest, OneMicroBatchHasTheSameBits) {
  OneLayer apart(Square(), false, 1), together(Square(), true, 1);
  for (OneLayer* one : {&apart, &together}) {
    one->Forward(0);
    Backward(*one->stage, 0);
    one->stage->JoinedWeights();
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(SameBits(apart.gradient(i), together.gradient(i))) << i;
  }
}

// Between the actions of a group there are the layer's inputs and output gradients, after it
// nothing.
TEST_P(JoinedStageTest, FreesWhatItKept) {
  InstallAllocator();
  constexpr int kAccount = 11;
  SetMemoryAccount(kAccount);
  {
    OneLayer one(Square(), true, 4);
    const int64_t before = MemoryOf(kAccount).current;
    for (int m = 0; m < 4; ++m) {
      one.Forward(m);
      Backward(*one.stage, m);
      one.stage->TakeInputGradient(m);
      EXPECT_EQ(MemoryOf(kAccount).current - before, 2 * (m + 1) * kTensor) << m;
    }
    one.stage->JoinedWeights();
    EXPECT_EQ(MemoryOf(kAccount).current, before);
  }
  SetMemoryAccount(0);
}

TEST_P(JoinedStageTest, ARunForgetsWhatTheLastOneKept) {
  OneLayer one(Square(), true, 1);
  one.Forward(0);
  Backward(*one.stage, 0);
  EXPECT_TRUE(one.stage->has_joined());
  one.stage->Begin(one.run);
  EXPECT_FALSE(one.stage->has_joined());
  one.stage->JoinedWeights();
  EXPECT_EQ(one.gradient(0).abs().sum().item<float>(), 0);
}

INSTANTIATE_TEST_SUITE_P(Backwards, JoinedStageTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Split" : "Whole"; });

// ---- Jobs

at::Tensor Image(int64_t i) {
  return at::arange(8 * 36, at::kFloat).add(31 * i).mul(0.37).sin().view({8, 1, 6, 6});
}

/// Convolution, norm, tied layers, dropout: of 8 layers 5 have products of rows.
std::vector<LayerSpec> Network() {
  std::vector<LayerSpec> layers = {Make("Conv2d", {1, 4, 3}),
                                   Make("Flatten"),
                                   Make("Linear", {64, 32}),
                                   Make("Dropout", {0.2}),
                                   Make("Linear", {32, 32}),
                                   Make("ReLU", {}, {{"inplace", true}}),
                                   Make("LayerNorm", {32}),
                                   Make("Linear", {32, 32, false}),
                                   Make("Tanh"),
                                   Make("Linear", {32, 32, false}),
                                   Make("Linear", {32, 5})};
  for (const int i : {7, 9}) {
    layers[static_cast<size_t>(i)].tied_key = "t";
    layers[static_cast<size_t>(i)].tied_weights = {"weight"};
  }
  return layers;
}

Job JobOf(const Value::Map& more) {
  const Value::Map keys = {{"input", MapOf({{"shape", Value::IntList({1, 6, 6})}})},
                           {"parallel", MapOf({{"pipe", 2}})},
                           {"batch", MapOf({{"micro_batches", 6}, {"micro_batch_size", 8}})},
                           {"data", MapOf({{"train", testing::Function(1)}})},
                           {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.05}, {"momentum", 0.9}})},
                           {"tie_check", 1},
                           {"steps", 3}};
  return testing::MakeJob(Network(), Make("CrossEntropyLoss"), testing::With(keys, more));
}

struct Training {
  std::vector<StepResult> steps;
  std::vector<TensorDigest> parameters;
  std::vector<int> joined;
};

Training Train(const Job& job) {
  FakeScript script;
  script.data[1] = [](int64_t i) {
    return MicroBatch{{Image(i)}, {at::arange(8).mul(7).add(3 * i).remainder(5)}};
  };
  const Plan plan = PlanJob(job, {}, &script);
  const auto engine = MakeThreadsEngine(job, plan, script);
  engine->set_record_gradients(true);
  Training run;
  run.joined = plan.joined();
  for (int64_t step = 0; step < job.steps; ++step) run.steps.push_back(engine->TrainStep());
  run.parameters = engine->Parameters();
  engine->Close();
  return run;
}

void ExpectNear(const Training& run, const Training& other) {
  const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); };
  ASSERT_EQ(run.steps.size(), other.steps.size());
  for (size_t step = 0; step < run.steps.size(); ++step) {
    const StepResult &a = run.steps[step], &b = other.steps[step];
    EXPECT_TRUE(near(a.loss, b.loss)) << step << ": " << a.loss << " " << b.loss;
    EXPECT_TRUE(near(a.grad_norm, b.grad_norm)) << step << ": " << a.grad_norm;
    ASSERT_EQ(a.gradients.size(), b.gradients.size());
    for (size_t i = 0; i < a.gradients.size(); ++i) {
      EXPECT_NEAR(a.gradients[i].norm, b.gradients[i].norm, 1e-5 * b.gradients[i].norm)
          << a.gradients[i].path << " in step " << step;
    }
  }
}

bool SameBitsAs(const Training& run, const Training& other) {
  return std::ranges::equal(run.parameters, other.parameters, {}, &TensorDigest::digest,
                            &TensorDigest::digest);
}

struct Case {
  const char* name;
  Value::Map keys;
  bool joins = true;
};

class JoinedJobTest : public ::testing::TestWithParam<Case> {};

TEST_P(JoinedJobTest, TrainsToTheSameLossesWithin1e6) {
  Value::Map keys = GetParam().keys;
  const Training apart = Train(JobOf(keys));
  keys.emplace_back("join", true);
  const Training together = Train(JobOf(keys));
  EXPECT_EQ(std::ranges::max(together.joined) > 1, GetParam().joins);
  ExpectNear(together, apart);
  // A joined product rounds in its own way somewhere; what is not joined keeps its bits.
  EXPECT_EQ(SameBitsAs(together, apart), !GetParam().joins);
  EXPECT_TRUE(SameBitsAs(Train(JobOf(keys)), together)) << "joined bits are the same every time";
}

Value Grid(int pipe, int data) { return MapOf({{"pipe", pipe}, {"data", data}}); }

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* schedule : {"1f1b", "gpipe", "zb_h1", "zb_h2", "auto"}) {
    cases.push_back({schedule, {{"schedule", schedule}}});
  }
  for (const char* schedule : {"interleaved_1f1b", "looped_bfs", "interleaved_zb", "zbv", "v_half",
                               "v_min", "dualpipev"}) {
    cases.push_back({schedule, {{"schedule", schedule}, {"stages_per_rank", 2}}});
  }
  cases.push_back({"one_stage", {{"parallel", Grid(1, 1)}}});
  cases.push_back({"five_stages", {{"parallel", Grid(5, 1)}, {"schedule", "zb_h1"}}});
  cases.push_back({"replicas", {{"parallel", Grid(2, 2)}}});
  cases.push_back({"zero", {{"parallel", Grid(2, 2)}, {"zero", 1}, {"clip", 0.5}}});
  cases.push_back({"clip", {{"clip", 0.1}, {"schedule", "zb_h1"}}});
  cases.push_back({"recompute", {{"recompute", true}}});
  cases.push_back(
      {"recompute_some", {{"recompute", MapOf({{"every", 2}})}, {"schedule", "gpipe"}}});
  cases.push_back({"frozen", {{"freeze", Value::IntList({0, 2, 4})}}});
  cases.push_back({"one_micro_batch",
                   {{"batch", MapOf({{"micro_batches", 1}, {"micro_batch_size", 8}})}},
                   false});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Jobs, JoinedJobTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// The last batch of an epoch has fewer micro-batches, and a short one.
TEST(JoinedJobs, TakeShortBatches) {
  const auto job = [](bool join) {
    const auto tokens =
        MakeDataSource("tokens", {12}, {{"length", 4}, {"samples", 42}}, "net.lua:9");
    return testing::MakeJob(
        {Make("Embedding", {12, 16}), Make("TransformerEncoderLayer", {16, 2, 24}),
         Make("Linear", {16, 12})},
        Make("CrossEntropyLoss"),
        {{"parallel", MapOf({{"pipe", 2}})},
         {"data", MapOf({{"train", tokens}})},
         {"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 4}})},
         {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.1}})},
         {"schedule", "zb_h1"},
         {"join", join},
         {"steps", 6}});
  };
  const Training together = Train(job(true));
  EXPECT_GT(std::ranges::max(together.joined), 1);
  ExpectNear(together, Train(job(false)));
}

}  // namespace
}  // namespace strata
