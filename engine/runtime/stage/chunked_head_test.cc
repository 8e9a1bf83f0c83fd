// These tests compare a head and a loss that run in chunks with PyTorch's operators in float64, and
// with other plans of the same job.
#include "engine/runtime/stage/chunked_head.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/layers/head_chunks.h"
#include "engine/layers/testing.h"
#include "engine/runtime/testing_job.h"

namespace strata {
namespace {

using ::testing::DoubleNear;
using testing::Function;
using testing::Make;
using testing::MapOf;
using testing::MaxDifference;
using testing::SameBits;
using testing::With;

constexpr int64_t kInputs = 6, kClasses = 5;

struct Case {
  std::string name;
  Value::Map loss = {};
  bool bias = true;
  std::vector<std::string> frozen = {};
  double loss_scale = 1;
  bool are_labels = true;
  double weight = 21;  ///< LossValue::weight for 21 labels, five of them 0 and four of each other
};

std::vector<Case> Cases() {
  const Value::Map weights = {{"weight", Value::List{0.5, 1.0, 2.0, 0.0, 3.0}},
                              {"ignore_index", 1}};
  return {{.name = "plain"},
          {.name = "no bias", .bias = false},
          {.name = "some ignored", .loss = {{"ignore_index", 2}}, .weight = 17},
          {.name = "class weights", .loss = weights, .weight = 22.5},
          {.name = "smoothing", .loss = With(weights, {{"label_smoothing", 0.2}}), .weight = 22.5},
          {.name = "sum", .loss = {{"reduction", "sum"}}, .weight = 0},
          {.name = "classes last", .loss = {{"class_dim", 2}}},
          {.name = "scaled", .loss_scale = 1024},
          {.name = "probabilities", .loss = {{"class_dim", -1}}, .are_labels = false},
          {.name = "frozen", .frozen = {"weight", "bias"}},
          {.name = "frozen weight", .frozen = {"weight"}},
          {.name = "frozen bias", .frozen = {"bias"}}};
}

/// The chunked head of a case, and what it computes.
struct Chunked {
  std::unique_ptr<Layer> layer;
  ChunkedHead::Result result;
  Tensors gradients;  ///< of x and of the parameters

  Chunked(const Case& c, const at::Tensor& x, const at::Tensor& target) {
    LayerSpec head = Make("Linear", {kInputs, kClasses}, {{"bias", c.bias}});
    head.frozen_parameters = c.frozen;
    layer = BuildLayer(head, nullptr);
    for (Parameter& parameter : layer->parameters()) {
      parameter.frozen = head.IsFrozen(parameter.name);
    }
    const testing::FlatBuffers buffers(*layer);
    const auto chunked = ChunkedHead::Make(head, Make("CrossEntropyLoss", {}, c.loss), 1);
    EXPECT_TRUE(chunked->Takes({x}, {target}));
    const at::Tensor leaf = x.clone().requires_grad_(true);
    result = chunked->Compute(*layer, leaf, target, testing::TrainingPass(),
                              {.loss_scale = c.loss_scale, .counts_hits = true});
    result.loss.sum.backward(at::full({}, c.loss_scale));
    gradients = {leaf.grad()};
    for (const at::Tensor& gradient : testing::Grads(*layer)) gradients.push_back(gradient);
  }
};

/// The same by PyTorch's operators in float64: the gradients, and the sum of the losses at the end.
Tensors InDouble(const Case& c, const Chunked& run, const at::Tensor& x, const at::Tensor& target) {
  Tensors leaves = {x.to(at::kDouble).requires_grad_(true)};
  for (const Parameter& parameter : run.layer->parameters()) {
    leaves.push_back(parameter.value.detach().to(at::kDouble).requires_grad_(!parameter.frozen));
  }
  const LayerSpec loss = Make("CrossEntropyLoss", {}, c.loss);
  std::optional<at::Tensor> weight;
  if (!loss.args["weight"].is_null()) {
    weight = at::tensor({0.5, 1.0, 2.0, 0.0, 3.0}, at::kDouble);
  }
  const at::Tensor logits =
      at::linear(leaves[0], leaves[1], c.bias ? std::make_optional(leaves[2]) : std::nullopt)
          .reshape({-1, kClasses});
  const at::Tensor rows =
      c.are_labels ? target.reshape({-1}) : target.to(at::kDouble).reshape({-1, kClasses});
  const at::Tensor sum =
      at::cross_entropy_loss(logits, rows, weight, at::Reduction::Sum, loss.Int("ignore_index"),
                             loss.Number("label_smoothing"));
  sum.backward(at::full({}, c.loss_scale, at::kDouble));
  Tensors gradients;
  for (const at::Tensor& leaf : leaves) gradients.push_back(leaf.grad());
  gradients.push_back(sum.detach());
  return gradients;
}

TEST(ChunkedHead, EqualsPyTorchInDouble) {
  const at::Tensor x = testing::Normal({3, 7, kInputs}, 5);
  for (const Case& c : Cases()) {
    for (const int64_t chunk : {1, 4, 20}) {  // 20: one row is left
      const WithRowsOfChunk rows(chunk);
      const at::Tensor target = c.are_labels ? at::arange(21).remainder(kClasses).view({3, 7})
                                             : testing::Normal({3, 7, kClasses}, 6).softmax(-1);
      const Chunked run(c, x, target);
      const Tensors expected = InDouble(c, run, x, target);
      const std::string name = Str(c.name, ", chunks of ", chunk);
      for (size_t i = 0; i < run.gradients.size(); ++i) {
        ASSERT_EQ(run.gradients[i].defined(), expected[i].defined()) << name << " " << i;
        if (!expected[i].defined()) continue;
        EXPECT_LT(MaxDifference(run.gradients[i].to(at::kDouble), expected[i]), 1e-5 * c.loss_scale)
            << name << " " << i;
      }
      const LossValue& loss = run.result.loss;
      EXPECT_NEAR(loss.sum.item<double>(), expected.back().item<double>(), 2e-5) << name;
      EXPECT_EQ(loss.weight, c.weight) << name;
    }
  }
}

TEST(ChunkedHead, LabelsThatAreAllIgnoredGiveZero) {
  const WithRowsOfChunk rows(2);
  const Chunked run({.name = "ignored"}, testing::Normal({7, kInputs}, 5), at::full({7}, -100));
  EXPECT_EQ(run.result.loss.sum.item<double>(), 0);
  EXPECT_EQ(run.result.loss.weight, 0);
  EXPECT_EQ(run.result.hits.counted, 0);
  for (const at::Tensor& gradient : run.gradients) EXPECT_EQ(gradient.abs().sum().item<int>(), 0);
}

TEST(ChunkedHead, TakesRowsOfScoresBeyondAChunk) {
  const WithRowsOfChunk of_chunk(6);
  const LayerSpec head = Make("Linear", {kInputs, kClasses});
  const auto takes = [&](const Value::Map& loss, const at::Tensor& x, const at::Tensor& target) {
    return ChunkedHead::Make(head, Make("CrossEntropyLoss", {}, loss), 1)->Takes({x}, {target});
  };
  const auto labels = [](at::IntArrayRef sizes) { return at::zeros(sizes, at::kLong); };
  const at::Tensor rows = at::zeros({7, kInputs}), texts = at::zeros({2, 4, kInputs});
  EXPECT_TRUE(takes({}, rows, labels({7})));
  EXPECT_FALSE(takes({}, rows.narrow(0, 0, 6), labels({6}))) << "one chunk";
  EXPECT_FALSE(takes({}, rows, labels({7, 1}))) << "which the loss refuses";
  EXPECT_FALSE(takes({}, at::zeros({7, 9}), labels({7}))) << "which the layer refuses";
  EXPECT_FALSE(takes({}, at::zeros({kInputs}), labels({})));
  EXPECT_TRUE(takes({}, texts, labels({2, 4})));
  EXPECT_FALSE(takes({{"class_dim", 1}}, texts, labels({2, kClasses}))) << "classes in dim 1";
  EXPECT_FALSE(takes({}, at::zeros({2, 5, kInputs}), labels({2, 5}))) << "either dim fits";
}

TEST(ChunkedHead, IsOfALinearAndACrossEntropy) {
  const LayerSpec head = Make("Linear", {kInputs, kClasses}), loss = Make("CrossEntropyLoss");
  const auto made = [](const LayerSpec& head, const LayerSpec& loss, int model) {
    return ChunkedHead::Make(head, loss, model) != nullptr;
  };
  EXPECT_TRUE(made(head, loss, 1));
  EXPECT_TRUE(made(head, loss, 2)) << "every rank has it whole";
  const LayerSpec split = Make("Linear", {kInputs, kClasses}, {{"split", "column"}});
  EXPECT_TRUE(made(split, loss, 1));
  EXPECT_FALSE(made(split, loss, 2));
  LayerSpec part = head;
  part.input_shard = 1;
  EXPECT_FALSE(made(part, loss, 2)) << "each rank has some of the tokens";
  EXPECT_FALSE(made(Make("Linear", {kInputs, kClasses}, {{"dtype", "float32"}}), loss, 1));
  EXPECT_FALSE(made(Make("ReLU"), loss, 1));
  EXPECT_FALSE(made(head, Make("NLLLoss"), 1));
  LayerSpec tied = head;
  tied.tied_forward = Function(1);
  EXPECT_FALSE(made(tied, loss, 1));
  for (const auto& [first, second] :
       {std::pair(testing::ScriptedLayer(1), loss), std::pair(head, testing::ScriptedLayer(1))}) {
    EXPECT_FALSE(made(first, second, 1));
  }
}

// ---- Plans

/// A small language model of 9 words, whose last layer has the weight of the first.
Job Texts(const Value::Map& more) {
  LayerSpec words = Make("Embedding", {9, 8}), head = Make("Linear", {8, 9}, {{"bias", false}});
  words.tied_key = head.tied_key = "words";
  return testing::MakeJob(
      {words, Make("Dropout", {0.2}), Make("Linear", {8, 16}), Make("GELU"),
       Make("Linear", {16, 8}), Make("LayerNorm", {8}), head},
      Make("CrossEntropyLoss", {}, {{"class_dim", -1}}),
      With({{"input", MapOf({{"shape", Value::IntList({7})}, {"dtype", "int64"}})},
            {"data", MapOf({{"train", Function(1)}})},
            {"optimizer", MapOf({{"1", "adamw"}, {"lr", 0.01}})},
            {"losses", true},
            {"eval", MapOf({{"metric", "accuracy"}})},
            {"clip", 0.5},
            {"steps", 3}},
           more));
}

testing::FakeScript TextScript() {
  return testing::ScriptOf([](int64_t i) {
    const at::Tensor words = at::arange(8 * 8).mul(5).add(3 * i).remainder(9).view({8, 8});
    return MicroBatch{{words.narrow(1, 0, 7)},
                      {words.narrow(1, 1, 7).masked_fill(words.narrow(1, 0, 7).eq(4), -100)}};
  });
}

/// Everything that a training of this job computes, as text.
std::vector<std::string> BitsOf(const Value::Map& more) {
  testing::FakeScript script = TextScript();
  const auto engine = testing::Start(Texts(more), script);
  engine->set_record_gradients(true);
  std::vector<std::string> bits;
  const auto add = [&](double number) { bits.push_back(FormatDouble(number)); };
  const auto digests = [&](const std::vector<TensorDigest>& tensors) {
    for (const TensorDigest& tensor : tensors) bits.push_back(tensor.path + tensor.digest);
  };
  for (int step = 0; step < 3; ++step) {
    const StepResult result = engine->TrainStep();
    add(result.loss);
    for (const double loss : result.micro_batch_losses) add(loss);
    digests(result.gradients);
  }
  digests(engine->Parameters());
  MicroBatches batch;
  for (int m = 0; m < 4; ++m) batch.list.push_back(script.data[1](m));
  const EvalResult evaluated = engine->EvalBatch(batch, nullptr);
  add(evaluated.loss);
  add(evaluated.metric);
  engine->Close();
  return bits;
}

Value::Map Pipe(int pipe, const char* schedule, int stages = 1) {
  return {
      {"parallel", MapOf({{"pipe", pipe}})}, {"schedule", schedule}, {"stages_per_rank", stages}};
}

TEST(ChunkedHead, PlansHaveTheSameBits) {
  const WithRowsOfChunk rows(10);  // of 56
  for (const Value::Map& precision :
       {Value::Map{}, Value::Map{{"precision", "bf16"}}, Value::Map{{"precision", "fp16"}}}) {
    const auto bits = [&](const Value::Map& plan) { return BitsOf(With(plan, precision)); };
    const std::vector<std::string> expected = bits(Pipe(1, "1f1b"));
    for (const Value::Map& plan :
         {Pipe(1, "gpipe"), Pipe(2, "gpipe"), Pipe(2, "1f1b"), Pipe(7, "1f1b"), Pipe(2, "zb_h1"),
          Pipe(2, "zbv", 2), Pipe(2, "interleaved_1f1b", 2),
          With(Pipe(2, "1f1b"), {{"recompute", true}}),
          With(Pipe(1, "gpipe"), {{"recompute", true}}),
          With(Pipe(3, "zb_h1"), {{"partition", Value::IntList({0, 1, 6, 7})}})}) {
      EXPECT_EQ(bits(plan), expected) << MapOf(plan).ToJson();
    }
  }
}

TEST(ChunkedHead, ReplicasHaveTheSameBitsForEveryPipe) {
  const WithRowsOfChunk rows(10);
  const auto bits = [](int pipe) {
    return BitsOf({{"parallel", MapOf({{"pipe", pipe}, {"data", 2}})},
                   {"batch", MapOf({{"micro_batches", 2}, {"micro_batch_size", 8}})}});
  };
  EXPECT_EQ(bits(2), bits(1));
}

/// The same training with whole logits.
TEST(ChunkedHead, ChangesNothingButRounding) {
  for (const auto& [precision, near] : {std::pair("float32", 1e-5), std::pair("bf16", 1e-2)}) {
    const auto numbers = [precision = precision](int64_t rows) {
      const WithRowsOfChunk of_chunk(rows);
      std::vector<double> numbers;
      for (const std::string& text : BitsOf({{"precision", precision}})) {
        if (text.find('#') == text.npos && text.find("weight") == text.npos &&
            text.find("bias") == text.npos) {
          numbers.push_back(std::stod(text));
        }
      }
      return numbers;
    };
    const std::vector<double> whole = numbers(1000), chunks = numbers(10);
    ASSERT_EQ(whole.size(), 3 * 5 + 2u);
    EXPECT_THAT(chunks, ::testing::Pointwise(::testing::DoubleNear(near), whole)) << precision;
    EXPECT_NE(chunks, whole) << "some sum is another";
  }
}

/// A prediction needs the outputs, and gives those of the same weights.
TEST(ChunkedHead, AnEvaluationThatKeepsOutputsComputesThemWhole) {
  const WithRowsOfChunk rows(10);
  testing::FakeScript script = TextScript();
  const auto engine = testing::Start(Texts({}), script);
  MicroBatches batch;
  for (int m = 0; m < 4; ++m) batch.list.push_back(script.data[1](m));
  Outputs outputs;
  const EvalResult with_outputs = engine->EvalBatch(batch, &outputs);
  const EvalResult alone = engine->EvalBatch(batch, nullptr);
  EXPECT_EQ(outputs.list.at(0).at(0).sizes(), (std::vector<int64_t>{8, 7, 9}));
  EXPECT_NEAR(with_outputs.loss, alone.loss, 1e-6);
  EXPECT_EQ(with_outputs.metric, alone.metric);
  engine->Close();
}

}  // namespace
}  // namespace strata
