// Tests of steps whose loss or gradients are not finite, with engines whose ranks are threads.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/stage/examiner.h"
#include "engine/runtime/testing_job.h"

namespace strata {
namespace {

const WithGradientBlocks kSmallBlocks(256);

using ::testing::AllOf;
using testing::FakeScript;
using testing::Function;
using ::testing::HasSubstr;
using testing::Make;
using testing::MapOf;
using ::testing::Not;
using testing::ScriptedLayer;
using testing::Start;

constexpr int kBad = 9;  // the global micro-batch with bad values, the only one with 7 rows
constexpr int kForward = 1, kBackward = 2;  // ids of the scripted layers that make them

bool IsBad(const at::Tensor& x) { return x.size(0) == 7; }

/// `data` makes targets and inputs as given.
FakeScript Script(int bad = kBad) {
  FakeScript script =
      testing::ScriptOf([bad](int64_t i) { return testing::Rows(i, i == bad ? 7 : 8); });
  script.layers[kForward] = [](auto&, const Tensors& x, const Pass&) -> Tensors {
    return {IsBad(x[0]) ? x[0] / 0 : x[0] * 1};
  };
  // The output is finite, but the gradient of the square root of zero is not.
  script.layers[kBackward] = [](auto&, const Tensors& x, const Pass&) -> Tensors {
    return {IsBad(x[0]) ? at::sqrt(x[0] - x[0].detach()) : x[0] * 1};
  };
  return script;
}

/// Layer 3 is the scripted one. With two or more stages it is not on the last one.
std::vector<LayerSpec> Layers(int scripted) {
  return {Make("Linear", {6, 16}), Make("Dropout", {0.2}),  Make("Tanh"),
          ScriptedLayer(scripted), Make("Linear", {16, 8}), Make("Tanh"),
          Make("Linear", {8, 5})};
}

/// Of a step's 4 micro-batches each of two replicas has 2.
Value::Map Keys(const Value::Map& more = {}) {
  return testing::With({{"input", MapOf({{"shape", Value::IntList({6})}})},
                        {"data", MapOf({{"train", Function(1)}})},
                        {"optimizer", MapOf({{"1", "adamw"}, {"lr", 0.01}})},
                        {"steps", 6}},
                       more);
}

Value Grid(int pipe, int data = 1) { return MapOf({{"pipe", pipe}, {"data", data}}); }
Value Batch(int micro_batches) {
  return MapOf({{"micro_batches", micro_batches}, {"micro_batch_size", 8}});
}

Job MakeJob(const std::vector<LayerSpec>& layers, const Value::Map& more) {
  return testing::MakeJob(layers, Make("CrossEntropyLoss"), Keys(more));
}

std::vector<std::string> Digests(Engine& engine) {
  std::vector<std::string> digests;
  for (const TensorDigest& tensor : engine.Parameters()) digests.push_back(tensor.digest);
  return digests;
}

StepResult StepsUntilBad(Engine& engine) {
  StepResult result;
  for (int step = 0; step <= kBad / 4; ++step) result = engine.TrainStep();
  return result;
}

struct Variant {
  const char* name;
  Value::Map keys;
  Value::Map plain;  ///< keys of a training with the same bits
};

std::ostream& operator<<(std::ostream& out, const Variant& variant) { return out << variant.name; }

const std::vector<Variant>& Variants() {
  static const Value::Map one = {{"parallel", Grid(1)}};
  static const Value::Map two = {{"parallel", Grid(1, 2)}, {"batch", Batch(2)}};
  static const std::vector<Variant> variants = {
      {"one", one, one},
      {"pipe", {{"parallel", Grid(2)}}, one},
      {"clip", {{"parallel", Grid(3)}, {"clip", 0.5}}, {{"parallel", Grid(1)}, {"clip", 0.5}}},
      {"split", {{"parallel", Grid(2)}, {"schedule", "zb_h1"}}, one},
      {"again", {{"parallel", Grid(2)}, {"recompute", true}}, one},
      {"vee", {{"parallel", Grid(2)}, {"schedule", "zbv"}, {"stages_per_rank", 2}}, one},
      {"replicas", two, two},
      {"grid", {{"parallel", Grid(2, 2)}, {"batch", Batch(2)}, {"zero", 1}}, two},
      {"gradients", {{"parallel", Grid(2, 2)}, {"batch", Batch(2)}, {"zero", 2}}, two},
  };
  return variants;
}

class NonFiniteTest : public ::testing::TestWithParam<Variant> {};

TEST_P(NonFiniteTest, AStepThatIsNotTakenChangesNothing) {
  FakeScript script = Script();
  const auto engine = Start(MakeJob(Layers(kForward), GetParam().keys), script);
  engine->TrainStep();
  const StepResult good = engine->TrainStep();
  EXPECT_FALSE(good.nonfinite);
  const auto before = Digests(*engine);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const StepResult bad = engine->TrainStep();
    EXPECT_EQ(bad.step, 2);
    EXPECT_FALSE(bad.is_taken);
    EXPECT_TRUE(std::isnan(bad.loss));
    ASSERT_TRUE(bad.nonfinite);
    EXPECT_TRUE(bad.nonfinite->has_finite_weights);
    EXPECT_THAT(bad.nonfinite->report,
                AllOf(HasSubstr("step 3 was not taken: the loss is nan, the norm of its gradient "
                                "nan: net.lua:5: layer 3 "),
                      HasSubstr("micro-batch 1) gives an output"), HasSubstr("float32 (7, 16), "),
                      HasSubstr(" Inf of 112 values")));
    EXPECT_THAT(ErrorOf([&] { bad.CheckTaken(); }), bad.nonfinite->report);
    EXPECT_EQ(Digests(*engine), before);
  }
  engine->Close();
}

TEST_P(NonFiniteTest, AGradientIsNamedWhereTheLossIsFinite) {
  FakeScript script = Script();
  const auto engine = Start(MakeJob(Layers(kBackward), GetParam().keys), script);
  const StepResult bad = StepsUntilBad(*engine);
  EXPECT_TRUE(std::isfinite(bad.loss));
  EXPECT_FALSE(std::isfinite(bad.grad_norm));
  EXPECT_FALSE(bad.is_taken);
  EXPECT_THAT(bad.nonfinite->report,
              AllOf(HasSubstr(": net.lua:5: layer 3 "),
                    HasSubstr("micro-batch 1) gives a gradient of its input that is not finite")));
  engine->Close();
}

TEST_P(NonFiniteTest, WhatIsLeftOutIsCountedAndTheRestIsAsOnOneRank) {
  const auto train = [](const Value::Map& keys) {
    Value all = Value::MakeMap(keys);
    all.Set("nonfinite", "skip");
    FakeScript script = Script();
    const auto engine = Start(MakeJob(Layers(kForward), all.as_map()), script);
    std::vector<std::string> bits;
    for (int step = 0; step < 5; ++step) {
      const auto before = Digests(*engine);
      const StepResult result = engine->TrainStep();
      EXPECT_TRUE(result.is_taken);
      EXPECT_EQ(result.skipped, step < 2 ? 0 : 1);
      EXPECT_EQ(result.nonfinite.has_value(), step == 2);
      EXPECT_EQ(before == Digests(*engine), step == 2);
      if (step != 2) bits.push_back(Str(std::hexfloat, result.loss, " ", result.grad_norm));
    }
    std::ranges::copy(Digests(*engine), std::back_inserter(bits));
    engine->Close();
    return bits;
  };
  EXPECT_EQ(train(GetParam().keys), train(GetParam().plain));
}

INSTANTIATE_TEST_SUITE_P(All, NonFiniteTest, ::testing::ValuesIn(Variants()),
                         [](const auto& info) { return info.param.name; });

TEST(NonFinitePolicyTest, AStepThatIsLeftOutIsNoneForTheOptimizerNorForSaves) {
  const std::string dir = ::testing::TempDir() + "/skipped";
  const auto train = [&](int bad, const Value::Map& more, int steps) {
    const Value::Map keys = {{"nonfinite", "skip"}, {"parallel", Grid(2)}};
    FakeScript script = Script(bad);
    const auto engine = Start(MakeJob(Layers(kForward), testing::With(keys, more)), script);
    StepResult result;
    for (int i = 0; i < steps; ++i) result = engine->TrainStep();
    if (more.size() > 0 && more[0].first == "save") engine->Save();
    const auto digests = Digests(*engine);
    engine->Close();
    EXPECT_EQ(result.skipped, 1);
    return digests;
  };
  // The first step is skipped, so the first update of Adam and SGD comes after it.
  const auto whole = train(1, {}, 4);
  train(1, {{"save", MapOf({{"dir", dir}})}}, 2);
  EXPECT_EQ(train(1, {{"resume", dir}}, 2), whole);
  EXPECT_EQ(train(1, {{"resume", dir}, {"nonfinite", "warn"}}, 2), whole);
}

TEST(NonFinitePolicyTest, ALossOfFiniteValuesIsNamedWithItsLineAndMicroBatch) {
  FakeScript script;
  script.data[1] = [](int64_t i) -> MicroBatch {
    return {{at::ones({8, 6})}, {at::full({8, 5}, i == 5 ? 1e30 : 1.0, at::kFloat)}};
  };
  LayerSpec loss = Make("MSELoss");
  loss.where = "net.lua:12";
  for (const int pipe : {1, 2}) {
    const auto engine = Start(testing::MakeJob({Make("Linear", {6, 8}), Make("Linear", {8, 5})},
                                               loss, Keys({{"parallel", Grid(pipe)}})),
                              script);
    EXPECT_TRUE(engine->TrainStep().is_taken);
    EXPECT_THAT(engine->TrainStep().nonfinite->report,
                HasSubstr(Str(": net.lua:12: the loss MSELoss() (stage ", pipe - 1,
                              ", micro-batch 1) gives a value that is not finite: float32 ()")));
    engine->Close();
  }
}

// As in a PyTorch loop that calls scheduler.step() after every scaler.step().
TEST(NonFinitePolicyTest, TheLearningRateMovesOnInStepsThatFloat16LeavesOut) {
  FakeScript script = Script(-1);
  const auto engine = Start(
      MakeJob(Layers(kForward), {{"optimizer", MapOf({{"1", "sgd"}, {"lr", 1.0}})},
                                 {"lr_schedule", MapOf({{"1", "exponential"}, {"gamma", 0.5}})},
                                 {"precision", MapOf({{"1", "fp16"}, {"initial_scale", 0x1p40}})}}),
      script);
  for (int step = 0; step < 3; ++step) {
    const StepResult result = engine->TrainStep();
    EXPECT_EQ(result.skipped, step + 1);
    EXPECT_EQ(result.lr, std::pow(0.5, step));
  }
  engine->Close();
}

TEST(NonFinitePolicyTest, StatisticsAreThoseOfTheStepBefore) {
  FakeScript script = Script();
  std::vector<LayerSpec> layers = {Make("Unflatten", {1, Value::IntList({6, 1, 1})}),
                                   ScriptedLayer(kForward), Make("BatchNorm2d", {6}),
                                   Make("Flatten"), Make("Linear", {6, 5})};
  const auto loss = [&](int64_t steps, const Value& nonfinite) {
    const auto engine =
        Start(MakeJob(layers, {{"parallel", Grid(2)}, {"nonfinite", nonfinite}}), script);
    for (int64_t i = 0; i < steps; ++i) engine->TrainStep();
    MicroBatches batch{{script.data[1](0)}};
    const double result = engine->EvalBatch(batch, nullptr).loss;
    engine->Close();
    return result;
  };
  EXPECT_EQ(loss(3, "skip"), loss(2, "skip"));
  EXPECT_EQ(loss(3, "stop"), loss(2, "stop"));
  EXPECT_TRUE(std::isnan(loss(3, "warn")));
}

TEST(NonFinitePolicyTest, AWarningSaysItOnceAndTheStepCounts) {
  FakeScript script = Script();
  const auto engine =
      Start(MakeJob(Layers(kForward), {{"parallel", Grid(2)}, {"nonfinite", "warn"}}), script);
  engine->TrainStep(), engine->TrainStep();
  const auto before = Digests(*engine);
  const StepResult first = engine->TrainStep(), second = engine->TrainStep();
  EXPECT_TRUE(first.is_taken && second.is_taken);
  EXPECT_THAT(first.nonfinite->report, HasSubstr("step 3 counts although the loss is nan"));
  EXPECT_EQ(second.nonfinite->report, "") << "its weights are not finite";
  EXPECT_NE(Digests(*engine), before);
  EXPECT_EQ(second.skipped, 0);
  engine->Close();
}

// Only the loss is not finite. The step is examined with its own loss scale, not with the next one.
TEST(NonFinitePolicyTest, AStepThatCountsIsDividedByItsOwnLossScale) {
  FakeScript script = Script(-1);
  script.data[1] = [](int64_t i) -> MicroBatch {
    MicroBatch batch = testing::Rows(i);
    batch.target = {at::full({8, 5}, std::numeric_limits<float>::infinity())};
    return batch;
  };
  const auto stepped = [&](const Value::Map& precision) {
    const auto engine =
        Start(testing::MakeJob({Make("Linear", {6, 5})}, Make("HuberLoss", {}, {{"delta", 0.01}}),
                               Keys({{"nonfinite", "warn"},
                                     {"optimizer", MapOf({{"1", "sgd"}, {"lr", 1.0}})},
                                     {"precision", MapOf(precision)}})),
              script);
    const auto before = Digests(*engine);
    const StepResult result = engine->TrainStep();
    EXPECT_TRUE(std::isinf(result.loss) && std::isfinite(result.grad_norm));
    EXPECT_NE(Digests(*engine), before);
    auto after = Digests(*engine);
    engine->Close();
    return after;
  };
  EXPECT_EQ(stepped({{"1", "fp16"}}), stepped({{"1", "fp16"}, {"scale", 65536.0}}));
}

TEST(NonFinitePolicyTest, WeightsThatAreNotFiniteEndASkippingTrainingToo) {
  FakeScript script = Script(-1);
  const auto small = script.data[1];
  script.data[1] = [&](int64_t i) {
    MicroBatch batch = small(i);
    batch.input[0].mul_(1000);
    return batch;
  };
  const Value too_large = MapOf({{"1", "sgd"}, {"lr", 3e38}});
  const auto engine =
      Start(MakeJob({ScriptedLayer(kForward), Make("Linear", {6, 5})},
                    {{"parallel", Grid(2)}, {"nonfinite", "skip"}, {"optimizer", too_large}}),
            script);
  EXPECT_TRUE(engine->TrainStep().is_taken);
  const StepResult result = engine->TrainStep();
  ASSERT_FALSE(result.is_taken);
  EXPECT_FALSE(result.nonfinite->has_finite_weights);
  EXPECT_THAT(result.nonfinite->report, HasSubstr("by its parameter 1.weight (float32 (5, 6)"));
  engine->Close();
}

TEST(NonFinitePolicyTest, DataThatIsNotFiniteIsNamed) {
  FakeScript script = Script();
  const auto good = script.data[1];
  script.data[1] = [&](int64_t i) {
    MicroBatch batch = good(i);
    if (i == 2) batch.input[0][3][1] = std::numeric_limits<float>::quiet_NaN();
    return batch;
  };
  const auto engine = Start(MakeJob(Layers(kForward), {{"parallel", Grid(2)}}), script);
  EXPECT_THAT(engine->TrainStep().nonfinite->report,
              AllOf(HasSubstr("nan: net.lua:7: the data (stage 0, micro-batch 2) gives an input"),
                    HasSubstr("1 NaN and 0 Inf of 48 values")));
  engine->Close();
}

/// Floating-point targets, of which one in micro-batch 2 is infinite.
MicroBatch WithBadTarget(int64_t i) {
  MicroBatch batch = testing::Rows(i);
  batch.target = {at::ones({8, 5})};
  if (i == 2) batch.target[0][0][4] = std::numeric_limits<float>::infinity();
  return batch;
}

TEST(NonFinitePolicyTest, TargetsThatAreNotFiniteAreNamed) {
  FakeScript script = Script();
  script.data[1] = WithBadTarget;
  const Job job =
      testing::MakeJob(Layers(kForward), Make("MSELoss"), Keys({{"parallel", Grid(2)}}));
  const auto engine = Start(job, script);
  EXPECT_THAT(engine->TrainStep().nonfinite->report,
              AllOf(HasSubstr(": net.lua:7: the data (stage 1, micro-batch 2) gives a target"),
                    HasSubstr("0 NaN and 1 Inf of 40 values")));
  engine->Close();
}

TEST(NonFinitePolicyTest, DataThatTheCallerGivesHasNoLine) {
  FakeScript script = Script();
  script.data[1] = WithBadTarget;
  const Job job =
      testing::MakeJob(Layers(kForward), Make("MSELoss"), Keys({{"parallel", Grid(2)}}));
  const auto engine = Start(job, script);
  MicroBatches batch;
  for (int64_t i = 0; i < 4; ++i) batch.list.push_back(WithBadTarget(i));
  EXPECT_THAT(engine->TrainStep(&batch).nonfinite->report,
              AllOf(HasSubstr(": the data (stage 1, micro-batch 2) gives a target"),
                    Not(HasSubstr("net.lua"))));
  engine->Close();
}

TEST(NonFinitePolicyTest, WhatIsFiniteTheSecondTimeIsSaid) {
  FakeScript script = Script(0);
  int calls = 0;
  script.layers[kForward] = [&](auto&, const Tensors& x, const Pass&) -> Tensors {
    return {IsBad(x[0]) && calls++ == 0 ? x[0] / 0 : x[0] * 1};
  };
  const auto engine = Start(MakeJob(Layers(kForward), {{"parallel", Grid(1)}}), script);
  EXPECT_THAT(engine->TrainStep().nonfinite->report, HasSubstr("when it runs again all values"));
  engine->Close();
}

TEST(StatisticsTest, TellsWhatIsFinite) {
  const double inf = std::numeric_limits<double>::infinity();
  const at::Tensor tensor = at::tensor({-1.5, inf, 2.0, std::nan(""), 0.5, -inf}, at::kFloat);
  EXPECT_EQ(Statistics(tensor),
            "float32 (6,), 1 NaN and 2 Inf of 6 values, the others from -1.5 to 2, mean 0.333333");
  EXPECT_THAT(Statistics(at::full({}, inf)), Not(HasSubstr("others")));
  EXPECT_TRUE(IsFinite(at::ones({2}, at::kLong)));
}

}  // namespace
}  // namespace strata
