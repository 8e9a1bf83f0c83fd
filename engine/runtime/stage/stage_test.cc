#include "engine/runtime/stage/stage.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/tensors/allocator.h"
#include "engine/base/tensors/dtype.h"
#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/comm/specs.h"
#include "engine/job/data_source.h"
#include "engine/layers/head_chunks.h"
#include "engine/layers/testing.h"
#include "engine/runtime/stage/examiner.h"
#include "engine/runtime/stage/graph_input.h"
#include "engine/runtime/testing.h"

namespace strata {
namespace {

using testing::FunctionLayer;
using ::testing::HasSubstr;
using testing::Make;
using testing::SameBits;

/// Stages over a list of layers, cut at `bounds`, with initial values by layer index.
struct Pipe {
  std::vector<std::unique_ptr<Stage>> stages;
  Boundaries boundaries;
  RunSpec run;

  Pipe(const std::vector<LayerSpec>& specs, const std::vector<int>& bounds, const LayerSpec& loss,
       const Tensors& input, int micro_batches = 1, const ParameterTypes& types = {}) {
    TensorSpecs shapes = SpecsOf(input);
    boundaries.push_back(shapes);
    for (size_t s = 0; s + 1 < bounds.size(); ++s) {
      StageParts parts;
      parts.stage = static_cast<int>(s);
      parts.is_first = s == 0;
      parts.types = types;
      parts.seed = 7;
      parts.job_layers = static_cast<int>(specs.size());
      for (int i = bounds[s]; i < bounds[s + 1]; ++i) {
        const RandomScope scope(100 + i);
        parts.layers.push_back({i, std::to_string(i), Str("layer ", i, " ", specs[i].ToString()),
                                BuildLayer(specs[i], nullptr)});
        shapes = InferLayer(specs[i], shapes, nullptr);
      }
      if (s + 2 == bounds.size()) {
        parts.loss = BuildLoss(loss, nullptr);
        parts.chunked_head = ChunkedHead::Make(specs.back(), loss, 1);
      }
      parts.loss_label = Str("the loss ", loss.ToString());
      boundaries.push_back(WithType(shapes, DType::kFloat32, FromScalarType(types.compute)));
      stages.push_back(
          std::make_unique<Stage>(std::move(parts), [](int, const std::string&) { return -1; }));
    }
    run.boundaries.assign(micro_batches, &boundaries);
    Begin();
  }

  void Begin() {
    for (auto& stage : stages) stage->Begin(run);
  }

  void Forward(int m, const Tensors& input, const Tensors& target, Keep keep = Keep::kActivations) {
    stages.front()->SetInput(m, input);
    stages.back()->SetTarget(m, target);
    for (size_t s = 0; s < stages.size(); ++s) {
      if (s > 0) stages[s]->SetInput(m, stages[s - 1]->TakeOutput(m));
      stages[s]->Forward(m, keep);
    }
  }

  void Backward(int m, const std::function<void(Stage&)>& backward) {
    for (size_t s = stages.size(); s-- > 0;) {
      backward(*stages[s]);
      if (s > 0) stages[s - 1]->SetOutputGradient(m, stages[s]->TakeInputGradient(m));
    }
  }

  std::vector<at::Tensor> Gradients() const {
    std::vector<at::Tensor> gradients;
    for (const auto& stage : stages) {
      for (const PlacedParameter& parameter : stage->parameters().parameters()) {
        if (parameter.gradient.defined()) gradients.push_back(parameter.gradient.clone());
      }
    }
    return gradients;
  }
};

const std::vector<LayerSpec>& Layers() {
  static const std::vector<LayerSpec> layers = {Make("Linear", {6, 8}), Make("Dropout", {0.5}),
                                                Make("ReLU", {}, {{"inplace", true}}),
                                                Make("LayerNorm", {8}), Make("Linear", {8, 5})};
  return layers;
}

LayerSpec CrossEntropy() { return Make("CrossEntropyLoss"); }

Tensors Input(int m) { return {at::arange(24, at::kFloat).add(m).mul(0.7).sin().view({4, 6})}; }
Tensors Target(int m) { return {at::arange(4).add(m).remainder(5)}; }

/// The losses and gradients of two micro-batches.
struct Outcome {
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> losses;
};

Outcome Train(const std::vector<int>& bounds, Keep keep,
              const std::function<void(Stage&, int)>& backward,
              const std::vector<LayerSpec>& layers = Layers(), const ParameterTypes& types = {},
              double loss_scale = 1) {
  Pipe pipe(layers, bounds, CrossEntropy(), Input(0), 2, types);
  pipe.run.loss_scale = loss_scale;
  for (int m = 0; m < 2; ++m) pipe.Forward(m, Input(m), Target(m), keep);
  for (int m = 0; m < 2; ++m) pipe.Backward(m, [&](Stage& stage) { backward(stage, m); });
  Outcome outcome{pipe.Gradients(), {}};
  for (int m = 0; m < 2; ++m) outcome.losses.push_back(pipe.stages.back()->loss(m).sum);
  return outcome;
}

Outcome TrainWhole() {
  return Train({0, 5}, Keep::kActivations, [](Stage& stage, int m) { stage.Backward(m); });
}

void ExpectSame(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    EXPECT_TRUE(SameBits(a.gradients[i], b.gradients[i])) << "gradient " << i;
    EXPECT_GT(a.gradients[i].abs().sum().item<double>(), 0) << "gradient " << i;
  }
  for (size_t m = 0; m < a.losses.size(); ++m) EXPECT_TRUE(SameBits(a.losses[m], b.losses[m]));
}

class StageCutTest : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(StageCutTest, BitsDoNotDependOnTheCut) {
  ExpectSame(TrainWhole(),
             Train(GetParam(), Keep::kActivations, [](Stage& stage, int m) { stage.Backward(m); }));
}

TEST_P(StageCutTest, SplitBackwardHasTheSameBits) {
  ExpectSame(TrainWhole(), Train(GetParam(), Keep::kActivations, [&](Stage& stage, int m) {
               stage.BackwardInput(m);
               stage.BackwardWeights(m);
             }));
}

TEST_P(StageCutTest, RecomputationHasTheSameBits) {
  ExpectSame(TrainWhole(), Train(GetParam(), Keep::kInput, [](Stage& stage, int m) {
               stage.Recompute(m);
               stage.Backward(m);
             }));
}

// Stages that begin with dropout, the in-place ReLU and the norm, and one stage per layer.
INSTANTIATE_TEST_SUITE_P(Cuts, StageCutTest,
                         ::testing::Values(std::vector<int>{0, 1, 5}, std::vector<int>{0, 2, 5},
                                           std::vector<int>{0, 3, 5},
                                           std::vector<int>{0, 1, 2, 3, 4, 5}));

// Four layers that double their input; the second one keeps its activations.
TEST(StageTest, RecomputesOneSegmentAtATime) {
  std::string log;
  StageParts parts;
  parts.stage = 1;
  parts.is_first = false;
  parts.end = 4;
  parts.segments = {{0, 1, true}, {1, 2, false}, {2, 4, true}};
  for (int i = 0; i < 4; ++i) {
    auto layer = std::make_unique<FunctionLayer>(
        [i, &log](FunctionLayer&, const Tensors& x, const Pass& pass) -> Tensors {
          log += Str(i, at::GradMode::is_enabled() ? "+" : "-", pass.recomputing ? "again " : " ");
          return {x[0].mul(2)};
        });
    parts.layers.push_back({i, std::to_string(i), Str("layer ", i), std::move(layer)});
  }
  Stage stage(std::move(parts), [](int, const std::string&) { return -1; });
  const Tensors ones = {at::ones({3})};
  const Boundaries boundaries(3, SpecsOf(ones));
  RunSpec run;
  run.boundaries = {&boundaries};
  stage.Begin(run);
  stage.SetInput(0, ones);
  stage.Forward(0, Keep::kInput);
  EXPECT_EQ(std::exchange(log, ""), "0- 1+ 2- 3- ");
  EXPECT_EQ(stage.TakeOutput(0)[0].sum().item<double>(), 48);
  stage.Recompute(0);
  EXPECT_EQ(std::exchange(log, ""), "2+again 3+again ");
  stage.SetOutputGradient(0, ones);
  stage.Backward(0);
  EXPECT_EQ(log, "0+again ");
  EXPECT_EQ(stage.TakeInputGradient(0)[0].sum().item<double>(), 48);
}

TEST(StageTest, EqualsPlainAutograd) {
  Pipe pipe({Make("Linear", {6, 5})}, {0, 1}, CrossEntropy(), Input(0), 2);
  Tensors leaves;
  for (const PlacedParameter& p : pipe.stages[0]->parameters().parameters()) {
    leaves.push_back(p.value.detach().clone().requires_grad_(true));
  }
  at::Tensor sum = at::zeros({});
  for (int m = 0; m < 2; ++m) {
    pipe.Forward(m, Input(m), Target(m));
    pipe.Backward(m, [&](Stage& stage) { stage.Backward(m); });
    EXPECT_EQ(pipe.stages[0]->loss(m).weight, 4);
    const at::Tensor output = at::linear(Input(m)[0], leaves[0], leaves[1]);
    sum = sum + at::cross_entropy_loss(output, Target(m)[0], {}, at::Reduction::Sum);
  }
  sum.backward();
  const auto gradients = pipe.Gradients();
  for (int i = 0; i < 2; ++i) {
    EXPECT_LT(testing::MaxDifference(gradients[i], leaves[i].grad()), 1e-6);
  }
}

TEST(StageTest, WhatReadsLogitsGetsThemWhole) {
  struct : OutputReader {
    Tensors output;
    void Read(int, const Tensors& given, const Tensors&) override { output = given; }
  } reader;
  const WithRowsOfChunk rows(2);  // of 4
  Pipe pipe(Layers(), {0, 5}, CrossEntropy(), Input(0));
  pipe.run.reader = &reader;
  pipe.Forward(0, Input(0), Target(0));
  EXPECT_EQ(reader.output.at(0).sizes(), (std::vector<int64_t>{4, 5}));
  pipe.run.reader = nullptr;
  Examiner examiner(0, "the data");
  pipe.run.examiner = &examiner;
  pipe.Begin();
  pipe.stages[0]->parameters().parameters().back().value.detach().fill_(INFINITY);
  pipe.Forward(0, Input(0), Target(0));
  EXPECT_THAT(examiner.first()->text, HasSubstr("layer 4 Linear(8, 5)"));
}

TEST(StageTest, TheDataIsNeverDifferentiatedNorChanged) {
  const Tensors input = {Input(0)[0].clone()};
  Pipe pipe({Make("ReLU", {}, {{"inplace", true}}), Make("Linear", {6, 5})}, {0, 2}, CrossEntropy(),
            input);
  pipe.Forward(0, input, Target(0));
  pipe.Backward(0, [](Stage& stage) { stage.Backward(0); });
  EXPECT_FALSE(input[0].requires_grad());
  EXPECT_TRUE(SameBits(input[0], Input(0)[0]));
  EXPECT_TRUE(pipe.stages[0]->TakeInputGradient(0).empty());
}

TEST(StageTest, KeepsNothingOfAnOutputThatNoBackwardReads) {
  Pipe pipe({Make("Linear", {6, 8}), Make("Linear", {8, 5})}, {0, 1, 2}, CrossEntropy(), Input(0));
  pipe.stages[0]->SetInput(0, Input(0));
  pipe.stages[0]->Forward(0, Keep::kActivations);
  const Tensors output = pipe.stages[0]->TakeOutput(0);
  EXPECT_FALSE(output[0].requires_grad());
  EXPECT_EQ(output[0].storage().use_count(), 1u);
}

TEST(StageTest, GradientsStartAtZeroWithEveryRun) {
  Pipe pipe(Layers(), {0, 2, 5}, CrossEntropy(), Input(0));
  const auto train = [&] {
    pipe.Begin();
    pipe.Forward(0, Input(0), Target(0));
    pipe.Backward(0, [](Stage& stage) { stage.Backward(0); });
    return pipe.Gradients();
  };
  const auto first = train();
  const auto second = train();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(SameBits(first[i], second[i]));
}

TEST(StageTest, RandomLayersDrawByGlobalMicroBatch) {
  const auto loss = [](int64_t first, int m) {
    Pipe pipe(Layers(), {0, 5}, CrossEntropy(), Input(0), 3);
    pipe.run.first_micro_batch = first;
    pipe.Begin();
    pipe.Forward(m, Input(0), Target(0));
    return pipe.stages[0]->loss(m).sum;
  };
  EXPECT_TRUE(SameBits(loss(0, 2), loss(2, 0)));
  EXPECT_FALSE(SameBits(loss(0, 2), loss(0, 1)));
}

TEST(StageTest, EvaluationKeepsNoGraphAndDoesNotDraw) {
  Pipe pipe(Layers(), {0, 2, 5}, CrossEntropy(), Input(0));
  pipe.run.training = false;
  pipe.run.keep_outputs = true;
  pipe.run.count_hits = true;
  pipe.Begin();
  pipe.Forward(0, Input(0), Target(0));
  const at::Tensor output = pipe.stages[1]->output(0)[0];
  EXPECT_FALSE(output.requires_grad());
  const Hits hits = pipe.stages[1]->hits(0);
  EXPECT_EQ(hits.counted, 4);
  EXPECT_EQ(hits.correct, output.argmax(1).eq(Target(0)[0]).sum().item<int64_t>());
  EXPECT_FALSE(pipe.stages[0]->has_input(0));
}

/// A stage of one function layer in the middle of a pipeline.
std::unique_ptr<Stage> MiddleStage(FunctionLayer::Function function) {
  StageParts parts;
  parts.stage = 1;
  parts.is_first = false;
  parts.layers.push_back(
      {3, "3", "layer 3 function", std::make_unique<FunctionLayer>(std::move(function))});
  return std::make_unique<Stage>(std::move(parts), [](int, const std::string&) { return -1; });
}

RunSpec RunOf(const Boundaries& boundaries) {
  RunSpec run;
  run.boundaries = {&boundaries};
  return run;
}

const TensorSpecs kTwo = {{{2}, DType::kFloat32}};

TEST(StageTest, AnUnusedInputHasAnAbsentGradientAndIntegersHaveNone) {
  const TensorSpecs three = {kTwo[0], kTwo[0], {{2}, DType::kInt64}};
  const Boundaries boundaries = {three, three, {kTwo[0], three[2]}};
  const RunSpec run = RunOf(boundaries);
  const auto stage = MiddleStage([](FunctionLayer&, const Tensors& x, const Pass&) {
    return Tensors{x[0] * 3, x[2]};
  });
  stage->Begin(run);
  stage->SetInput(0, {at::ones({2}), at::ones({2}), at::ones({2}, at::kLong)});
  stage->Forward(0, Keep::kActivations);
  EXPECT_EQ(stage->TakeOutput(0).size(), 2u);
  stage->SetOutputGradient(0, {at::ones({2})});
  stage->Backward(0);
  const Tensors gradients = stage->TakeInputGradient(0);
  ASSERT_EQ(gradients.size(), 2u);
  EXPECT_TRUE(gradients[0].equal(at::full({2}, 3)));
  EXPECT_TRUE(gradients[1].equal(at::zeros({2})));
  EXPECT_FALSE(IsAbsent(gradients[0]));
  EXPECT_TRUE(IsAbsent(gradients[1]));
}

TEST(StageTest, NothingRunsBackwardFromAnAbsentGradient) {
  const Boundaries boundaries = {kTwo, kTwo, {kTwo[0], kTwo[0]}};
  const RunSpec run = RunOf(boundaries);
  const auto stage = MiddleStage([](FunctionLayer&, const Tensors& x, const Pass&) {
    return Tensors{x[0] * 3, (x[0] * 0).sqrt()};  // NaN if zeros ran backward through it
  });
  const auto gradient = [&](const at::Tensor& of_first, const at::Tensor& of_second) {
    stage->Begin(run);
    stage->SetInput(0, {at::ones({2})});
    stage->Forward(0, Keep::kActivations);
    stage->SetOutputGradient(0, {of_first, of_second});
    stage->Backward(0);
    return stage->TakeInputGradient(0).at(0);
  };
  const at::Tensor absent = at::full({}, -0.0).expand({2});
  EXPECT_TRUE(gradient(at::ones({2}), absent).equal(at::full({2}, 3)));
  EXPECT_TRUE(gradient(at::ones({2}), at::zeros({2})).isnan().all().item<bool>());
  EXPECT_TRUE(gradient(at::ones({2}), at::zeros({}).expand({2})).isnan().all().item<bool>());
  EXPECT_TRUE(IsAbsent(gradient(absent, absent)));
}

TEST(StageTest, AnInputHandedThroughHasItsGradient) {
  const Boundaries boundaries = {kTwo, kTwo, kTwo};
  const RunSpec run = RunOf(boundaries);
  const auto stage = MiddleStage([](FunctionLayer&, const Tensors& x, const Pass&) { return x; });
  stage->Begin(run);
  stage->SetInput(0, {at::ones({2})});
  stage->Forward(0, Keep::kActivations);
  stage->SetOutputGradient(0, {at::full({2}, 5)});
  stage->Backward(0);
  EXPECT_TRUE(stage->TakeInputGradient(0)[0].equal(at::full({2}, 5)));
}

/// The gradient of a stage's only input, where the output's gradient is ones.
at::Tensor InputGradient(const at::Tensor& input,
                         const std::function<at::Tensor(const at::Tensor&)>& function) {
  const at::Tensor output = function(input);
  const Boundaries boundaries = {{}, SpecsOf({input}), SpecsOf({output})};
  const RunSpec run = RunOf(boundaries);
  const auto stage = MiddleStage(
      [&](FunctionLayer&, const Tensors& x, const Pass&) { return Tensors{function(x[0])}; });
  stage->Begin(run);
  stage->SetInput(0, {input});
  stage->Forward(0, Keep::kActivations);
  stage->SetOutputGradient(0, {at::ones(output.sizes())});
  stage->Backward(0);
  return stage->TakeInputGradient(0).at(0);
}

// A gradient keeps its strides, as it would inside a stage: operators choose kernels by strides.
TEST(StageTest, AGradientLeavesAsItLies) {
  const auto strides = [](const at::Tensor& input, const auto& function) {
    return InputGradient(input, function).strides().vec();
  };
  using Strides = std::vector<int64_t>;
  const at::Tensor x = at::ones({2, 3, 4});
  EXPECT_EQ(strides(x, [](const at::Tensor& t) { return t.transpose(1, 2); }), Strides({12, 1, 3}));
  EXPECT_EQ(strides(x,
                    [](const at::Tensor& t) {
                      return t.sum(at::IntArrayRef{1, 2});
                    }),
            Strides({1, 0, 0}));
  EXPECT_EQ(strides(x,
                    [](const at::Tensor& t) {
                      return at::cat({t, t.detach()}, 2);
                    }),
            Strides({24, 8, 1}));
  EXPECT_EQ(strides(x.transpose(1, 2), [](const at::Tensor& t) { return t.contiguous(); }),
            Strides({12, 3, 1}));
  // Two gradients, which are added up.
  EXPECT_EQ(strides(x, [](const at::Tensor& t) { return t.transpose(1, 2) + t.mT().exp(); }),
            Strides({12, 1, 3}));
}

TEST(StageTest, AFrozenFirstStageHasNothingToDoInBackward) {
  std::vector<LayerSpec> specs = {Make("Linear", {6, 8}), Make("Linear", {8, 5})};
  Pipe pipe(specs, {0, 1, 2}, CrossEntropy(), Input(0));
  StageParts parts;
  parts.layers.push_back({0, "0", "layer 0", BuildLayer(specs[0], nullptr)});
  for (Parameter& parameter : parts.layers[0].layer->parameters()) parameter.frozen = true;
  pipe.stages[0] =
      std::make_unique<Stage>(std::move(parts), [](int, const std::string&) { return -1; });
  pipe.Begin();
  pipe.Forward(0, Input(0), Target(0));
  pipe.Backward(0, [](Stage& stage) { stage.Backward(0); });
  EXPECT_EQ(pipe.Gradients().size(), 2u);
}

template <class Exception>
std::string MessageOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(StageTest, ErrorsNameTheLayer) {
  const Boundaries boundaries = {kTwo, kTwo, kTwo};
  const RunSpec run = RunOf(boundaries);
  const auto forward = [&](FunctionLayer::Function function) {
    return MessageOf<ConfigError>([&] {
      const auto stage = MiddleStage(std::move(function));
      stage->Begin(run);
      stage->SetInput(0, {at::ones({2})});
      stage->Forward(0, Keep::kActivations);
    });
  };
  const std::string broken = forward([](FunctionLayer&, const Tensors& x, const Pass&) {
    return Tensors{x[0].matmul(at::ones({3}))};
  });
  EXPECT_THAT(broken, HasSubstr("layer 3 function: "));
  EXPECT_THAT(broken, HasSubstr("size"));
  EXPECT_THAT(broken, ::testing::Not(HasSubstr("frame #")));
  const std::string other_shape = forward(
      [](FunctionLayer&, const Tensors& x, const Pass&) { return Tensors{x[0].unsqueeze(0)}; });
  EXPECT_THAT(other_shape, HasSubstr("layer 3 function gives float32 (1, 2)"));
  EXPECT_THAT(other_shape, HasSubstr("the plan has float32 (2,)"));
}

TEST(StageTest, ALabelOutOfRangeIsTheUsersError) {
  Pipe pipe(Layers(), {0, 5}, CrossEntropy(), Input(0));
  EXPECT_THAT(
      MessageOf<ConfigError>([&] { pipe.Forward(0, Input(0), {at::full({4}, 99, at::kLong)}); }),
      HasSubstr("the loss CrossEntropyLoss() (stage 0, micro-batch 0): expected a label from 0 to "
                "4, got 99 "));
}

constexpr ParameterTypes kBFloat16 = {at::kFloat, at::kBFloat16};

/// Norms, an embedding with its neighbours, and containers, whose layers convert their own tensors.
const std::vector<LayerSpec>& MixedLayers() {
  static const std::vector<LayerSpec> layers = {
      Make("Linear", {6, 8}),
      Make("RMSNorm", {8}),
      MakeLayer("Residual", {}, {}, {Make("LayerNorm", {8}), Make("Linear", {8, 8})}, ""),
      Make("Dropout", {0.5}),
      Make("ReLU", {}, {{"inplace", true}}),
      Make("Linear", {8, 5}),
  };
  return layers;
}

void BackwardOf(Stage& stage, int m) { stage.Backward(m); }

TEST(HalfPrecisionTest, CutsRecomputationAndSplitBackwardsKeepTheBits) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const ParameterTypes types = {at::kFloat, type};
    const auto train = [&](const std::vector<int>& bounds, Keep keep, const auto& backward) {
      return Train(bounds, keep, backward, MixedLayers(), types);
    };
    const Outcome whole = train({0, 6}, Keep::kActivations, BackwardOf);
    for (const std::vector<int>& bounds : {std::vector{0, 1, 6}, {0, 2, 3, 6}, {0, 4, 5, 6}}) {
      ExpectSame(train(bounds, Keep::kActivations, BackwardOf), whole);
      ExpectSame(train(bounds, Keep::kInput, BackwardOf), whole);
      ExpectSame(train(bounds, Keep::kActivations,
                       [](Stage& stage, int m) {
                         stage.BackwardInput(m);
                         stage.BackwardWeights(m);
                       }),
                 whole);
    }
  }
}

TEST(HalfPrecisionTest, GradientsAreFloat32SumsOfRoundedOnes) {
  const Outcome exact = Train({0, 6}, Keep::kActivations, BackwardOf, MixedLayers());
  const Outcome half = Train({0, 6}, Keep::kActivations, BackwardOf, MixedLayers(), kBFloat16);
  ASSERT_EQ(half.gradients.size(), exact.gradients.size());
  int rounded = 0;
  for (const at::Tensor& gradient : exact.gradients) {
    const auto same = [&](const at::Tensor& other) { return other.sizes() == gradient.sizes(); };
    EXPECT_TRUE(std::ranges::any_of(half.gradients, same));
  }
  for (size_t i = 0; i < half.gradients.size(); ++i) {
    const at::Tensor& gradient = half.gradients[i];
    EXPECT_EQ(gradient.scalar_type(), at::kFloat);
    // bf16 has 8 bits of mantissa, and about ten operations round.
    EXPECT_LT(testing::MaxDifference(gradient, exact.gradients[i]),
              0.05 * exact.gradients[i].abs().max().item<double>() + 1e-3);
    rounded += !SameBits(gradient, exact.gradients[i]);
    EXPECT_FALSE(SameBits(gradient, gradient.to(at::kBFloat16).to(at::kFloat))) << "one was added";
  }
  EXPECT_EQ(rounded, static_cast<int>(half.gradients.size()));
  EXPECT_EQ(half.losses[0].scalar_type(), at::kFloat);
}

TEST(HalfPrecisionTest, LayersSeeACopyThatEveryRunMakesAnew) {
  Pipe pipe({Make("Linear", {6, 5})}, {0, 1}, CrossEntropy(), Input(0), 1, kBFloat16);
  Stage& stage = *pipe.stages[0];
  const PlacedParameter& weight = stage.parameters().parameters()[0];
  EXPECT_EQ(weight.value.scalar_type(), at::kFloat);
  EXPECT_EQ(weight.leaf.scalar_type(), at::kBFloat16);
  EXPECT_EQ(stage.layers()[0].layer->parameters()[0].value.const_data_ptr(),
            weight.leaf.const_data_ptr());
  EXPECT_TRUE(SameBits(weight.leaf, weight.value.to(at::kBFloat16)));
  weight.value.mul_(3);
  pipe.Begin();
  EXPECT_TRUE(SameBits(weight.leaf, weight.value.to(at::kBFloat16)));
  pipe.Forward(0, Input(0), Target(0));
}

TEST(HalfPrecisionTest, NormsKeepTheirType) {
  Pipe pipe({Make("LayerNorm", {6}), Make("Linear", {6, 5})}, {0, 2}, CrossEntropy(), Input(0), 1,
            kBFloat16);
  const auto& parameters = pipe.stages[0]->parameters().parameters();
  EXPECT_TRUE(parameters[0].leaf.is_same(parameters[0].value));
  EXPECT_EQ(pipe.stages[0]->parameters().buffers().size(), 2u);
}

TEST(HalfPrecisionTest, TheLossScaleMultipliesGradientsAlone) {
  const ParameterTypes fp16 = {at::kFloat, at::kHalf};
  const auto train = [&](double scale) {
    return Train({0, 2, 6}, Keep::kActivations, BackwardOf, MixedLayers(), fp16, scale);
  };
  const Outcome plain = train(1), scaled = train(1024);
  EXPECT_TRUE(SameBits(plain.losses[0], scaled.losses[0]));
  for (size_t i = 0; i < plain.gradients.size(); ++i) {
    EXPECT_LT(testing::MaxDifference(scaled.gradients[i].div(1024), plain.gradients[i]), 2e-3);
    EXPECT_GT(scaled.gradients[i].abs().max().item<double>(), 1);
  }
}

TEST(BuildStageTest, LayersHaveTheirSeedsUnderEveryCut) {
  testing::FakeScript script;
  Job job;
  job.seed = 1234;
  job.layers = {Make("Linear", {6, 8}), Make("Linear", {8, 8}), Make("Linear", {8, 5})};
  job.layers[2].frozen = true;
  job.loss = CrossEntropy();
  Plan plan;
  plan.layers.resize(3);
  plan.stages.resize(2);
  plan.stages[0].end = 1;
  plan.stages[1] = {
      .stage = 1, .rank = 1, .begin = 1, .end = 3, .parameters = 0, .input = {}, .output = {}};
  const StageParts parts = BuildStage(job, plan, 1, at::kCPU, script);
  ASSERT_EQ(parts.layers.size(), 2u);
  EXPECT_FALSE(parts.is_first);
  EXPECT_NE(parts.loss, nullptr);
  EXPECT_EQ(parts.layers[0].path, "1");
  EXPECT_THAT(parts.layers[0].label, HasSubstr("net.lua:3: layer 1 Linear("));
  EXPECT_TRUE(parts.layers[1].layer->parameters()[0].frozen);
  const RandomScope scope(1234 + 1);
  const auto expected = BuildLayer(job.layers[1], nullptr);
  EXPECT_TRUE(
      SameBits(parts.layers[0].layer->parameters()[0].value, expected->parameters()[0].value));
}

// Kernels rely on the limits (DocumentMask), so a row beyond them must not get there.
TEST(BuildStageTest, RowsAreWithinTheLimitsOfTheData) {
  testing::FakeScript script;
  Job job;
  job.layers = {Make("documents"), Make("Embedding", {9, 4})};
  job.loss = CrossEntropy();
  DataFacts facts;
  facts.documents = {2, 5};
  job.train_data.kind = "pack";
  job.train_data.options = Value::MakeMap({{"facts", ToValue(facts)}});
  Plan plan;
  plan.layers.resize(2);
  plan.layers[0].output = {{{1, 6}, DType::kInt64}, {{1, 6}, DType::kInt64}};
  plan.stages.resize(1);
  plan.stages[0].end = 2;
  StageParts parts = BuildStage(job, plan, 0, at::kCPU, script);
  EXPECT_EQ(parts.documents, facts.documents);
  Stage stage(std::move(parts), [](int, const std::string&) { return -1; });
  const TensorSpecs tokens = {{{1, 6}, DType::kInt64}, {{1, 6}, DType::kInt64}};
  const Boundaries boundaries = {tokens, tokens, {{{1, 6, 4}, DType::kFloat32}}};
  stage.Begin(RunOf(boundaries));
  const auto error = [&](std::vector<int64_t> places) {
    return ErrorOf([&] {
      stage.SetInput(0, {at::zeros({1, 6}, at::kLong), at::tensor(places).unsqueeze(0)});
    });
  };
  EXPECT_THAT(error({0, 1, 0, 0, 1, 2}),
              HasSubstr("layer 0 documents(): row 0 has 3 documents, the longest of 3 tokens"));
  EXPECT_EQ(error({0, 1, 0, 1, 2, 3}), "no error");

  job.test_data.kind = "function";  // gives rows of any kind
  EXPECT_FALSE(BuildStage(job, plan, 0, at::kCPU, script).documents.known());
}

// The device "meta" stands for an accelerator: its tensors have no memory.
TEST(BuildStageTest, TheHostHoldsOneLayerAtATime) {
  InstallAllocator();
  constexpr int64_t kWidth = 512, kLayer = 4 * kWidth * kWidth;
  testing::FakeScript script;
  Job job;
  job.layers.assign(6, Make("Linear", {kWidth, kWidth}));
  job.loss = CrossEntropy();
  Plan plan;
  plan.layers.resize(6);
  plan.stages.resize(1);
  plan.stages[0].end = 6;
  ResetPeakMemory(0);
  const int64_t before = MemoryOf(0).current;
  const StageParts parts = BuildStage(job, plan, 0, at::kMeta, script);
  EXPECT_LT(MemoryOf(0).peak - before, 2 * kLayer);
  for (const StageLayer& layer : parts.layers) {
    for (const Parameter& parameter : layer.layer->parameters()) {
      EXPECT_TRUE(parameter.value.is_meta());
      EXPECT_TRUE(parameter.value.requires_grad());
    }
  }
}

// A scripted layer after it gets a copy-on-write tensor. The first copy of a tensor changes its
// storage, which this stage's thread still reads.
TEST(BuildStageTest, FunctionsOnOtherThreadsReadAStorageOfTheirOwn) {
  testing::FakeScript script;
  at::Tensor made;
  script.layers[1] = [&](FunctionLayer&, const Tensors& x, const Pass&) {
    made = x[0] * 2;
    return Tensors{made};
  };
  Job job;
  job.layers = {testing::ScriptedLayer(1), Make("Identity"), Make("Linear", {6, 5})};
  job.loss = CrossEntropy();
  Plan plan;
  plan.layers.resize(3);
  plan.stages.resize(3);
  for (int s = 0; s < 3; ++s) {
    plan.stages[s].stage = plan.stages[s].begin = s;
    plan.stages[s].end = s + 1;
  }
  const auto shares = [&](const std::string& transport) {
    plan.transport = transport;
    Stage stage(BuildStage(job, plan, 0, at::kCPU, script),
                [](int, const std::string&) { return 0; });
    const Boundaries boundaries = {SpecsOf(Input(0)), SpecsOf(Input(0))};
    const RunSpec run = RunOf(boundaries);
    stage.Begin(run);
    stage.SetInput(0, Input(0));
    stage.Forward(0, Keep::kActivations);
    const at::Tensor output = stage.TakeOutput(0)[0];
    EXPECT_EQ(output.const_data_ptr(), made.const_data_ptr());
    return output.storage().unsafeGetStorageImpl() == made.storage().unsafeGetStorageImpl();
  };
  EXPECT_TRUE(shares("threads")) << "no function behind it";
  job.layers[2] = MakeLayer("Sequential", {}, {}, {testing::ScriptedLayer(1)}, "net.lua:3");
  EXPECT_FALSE(shares("threads"));
  EXPECT_TRUE(shares("gloo"));
}

TEST(BuildStageTest, SeedFnDecides) {
  testing::FakeScript script;
  script.functions[1] = [](const Value::List& arguments) {
    return Value(1000 * (arguments[0].as_int() + 1));
  };
  Job job;
  job.layers = {Make("Linear", {6, 8}), Make("Linear", {6, 8})};
  job.loss = CrossEntropy();
  job.seed_fn = testing::Function(1);
  Plan plan;
  plan.layers.resize(2);
  plan.stages.resize(1);
  plan.stages[0].end = 2;
  const StageParts parts = BuildStage(job, plan, 0, at::kCPU, script);
  const RandomScope scope(2000);
  EXPECT_TRUE(SameBits(parts.layers[1].layer->parameters()[0].value,
                       BuildLayer(job.layers[1], nullptr)->parameters()[0].value));
  script.functions[1] = [](const Value::List&) { return Value("no"); };
  EXPECT_THAT(MessageOf<ConfigError>([&] { BuildStage(job, plan, 0, at::kCPU, script); }),
              HasSubstr("net.lua:7: seed_fn(0)"));
}

}  // namespace
}  // namespace strata
