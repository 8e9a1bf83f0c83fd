// Compares jobs whose layers are divided over several ranks with the same jobs on one rank.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/job/data_source.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/testing_job.h"

namespace strata {
namespace {

const WithGradientBlocks kSmallBlocks(256);

using testing::FakeScript;
using testing::Make;
using testing::MapOf;
using testing::Start;

struct Grid3 {
  int pipe, data, model;
  int zero = 0;
};

/// 12 kinds of tokens, sequences of 8, every kind of divided layer, dropout everywhere.
const std::vector<LayerSpec>& Layers() {
  const Value::Map transformer = {{"dim_feedforward", 24}, {"batch_first", true}, {"dropout", 0.1}};
  const auto with = [&](Value::Map more) {
    more.insert(more.begin(), transformer.begin(), transformer.end());
    return more;
  };
  static const std::vector<LayerSpec> layers = {
      Make("Embedding", {12, 16}, {{"split", "row"}}),
      Make("TransformerEncoderLayer", {16, 4}, with({{"norm_first", true}, {"causal", true}})),
      Make("TransformerDecoderLayer", {16, 4}, with({{"split", "sequence"}, {"causal", true}})),
      Make("Dropout", {0.1}),
      Make("LayerNorm", {16}, {{"split", "sequence"}}),
      Make("Linear", {16, 24}, {{"split", "column"}}),
      Make("ReLU", {}, {{"inplace", true}}),
      Make("Dropout", {0.1}),
      Make("Linear", {24, 16}, {{"split", "row"}}),
      Make("Linear", {16, 12}, {{"split", "column"}})};
  return layers;
}

Job MakeJob(const Grid3& grid, Value::Map keys = {}) {
  const auto tokens = [](const char* split) {
    return MakeDataSource("tokens", {12}, {{"length", 8}, {"samples", 96}, {"split", split}},
                          "net.lua:9");
  };
  keys.insert(
      keys.end(),
      {{"parallel", MapOf({{"pipe", grid.pipe}, {"data", grid.data}, {"model", grid.model}})},
       {"data", MapOf({{"train", tokens("train")}, {"test", tokens("test")}})},
       {"batch", MapOf({{"micro_batches", 4 / grid.data}, {"micro_batch_size", 4}})},
       // Not Adam: it makes full steps for gradients that are only rounding errors (of the keys'
       // bias).
       {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.1}, {"momentum", 0.9}})},
       {"zero", grid.zero},
       {"clip", 0.5},
       {"losses", true},
       {"steps", 4}});
  return testing::MakeJob(Layers(), Make("CrossEntropyLoss"), keys);
}

struct Training {
  std::vector<TensorDigest> initial, final;
  std::vector<StepResult> steps;
  EvalResult test;
};

Training Train(const Job& job) {
  FakeScript script;
  const auto engine = Start(job, script);
  engine->set_record_gradients(true);
  Training training;
  training.initial = engine->Parameters();
  for (int step = 0; step < 3; ++step) training.steps.push_back(engine->TrainStep());
  training.final = engine->Parameters();
  training.test = engine->EvaluateTestData();
  engine->Close();
  return training;
}

const Training& OnOneRank() {
  static const Training training = Train(MakeJob({1, 1, 1}));
  return training;
}

void ExpectClose(double a, double b, const std::string& what) {
  EXPECT_LE(std::abs(a - b), 1e-6 * std::max(1.0, std::abs(b))) << what << ": " << a << ", " << b;
}

void ExpectClose(const std::vector<TensorDigest>& a, const std::vector<TensorDigest>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].path, b[i].path);
    ExpectClose(a[i].norm, b[i].norm, a[i].path);
  }
}

class ModelAxisTest : public ::testing::TestWithParam<Grid3> {};

TEST_P(ModelAxisTest, TrainsAsOneRankDoes) {
  const Training training = Train(MakeJob(GetParam()));
  const Training& one = OnOneRank();
  ASSERT_EQ(training.initial.size(), one.initial.size());
  for (size_t i = 0; i < one.initial.size(); ++i) {
    EXPECT_EQ(training.initial[i].path, one.initial[i].path);
    EXPECT_EQ(training.initial[i].digest, one.initial[i].digest) << one.initial[i].path;
  }
  for (size_t i = 0; i < one.steps.size(); ++i) {
    const StepResult &shared = training.steps[i], &whole = one.steps[i];
    ExpectClose(shared.loss, whole.loss, "loss");
    ExpectClose(shared.grad_norm, whole.grad_norm, "gradient norm");
    EXPECT_EQ(shared.samples, whole.samples);
    ASSERT_EQ(shared.micro_batch_losses.size(), whole.micro_batch_losses.size());
    for (size_t m = 0; m < whole.micro_batch_losses.size(); ++m) {
      ExpectClose(shared.micro_batch_losses[m], whole.micro_batch_losses[m], Str("loss of ", m));
    }
    ExpectClose(shared.gradients, whole.gradients);
  }
  ExpectClose(training.final, one.final);
  ExpectClose(training.test.loss, one.test.loss, "test loss");
  EXPECT_EQ(training.test.samples, one.test.samples);
  EXPECT_EQ(training.test.metric, one.test.metric);
}

INSTANTIATE_TEST_SUITE_P(Grids, ModelAxisTest,
                         ::testing::Values(Grid3{1, 1, 2}, Grid3{2, 1, 2}, Grid3{3, 1, 2},
                                           Grid3{1, 1, 4}, Grid3{1, 2, 2}, Grid3{2, 2, 2},
                                           Grid3{1, 2, 2, 1}, Grid3{2, 2, 2, 2}),
                         [](const auto& info) {
                           return Str(info.param.pipe, "_", info.param.data, "_", info.param.model,
                                      info.param.zero ? Str("_zero", info.param.zero) : "");
                         });

TEST(ModelAxisJobTest, OutputsAreWholeAndComeOnce) {
  MicroBatches batch;
  batch.list = {{{at::arange(32).view({4, 8}).remainder(12)}, {at::zeros({4, 8}, at::kLong)}},
                {{at::zeros({2, 8}, at::kLong)}, {at::zeros({2, 8}, at::kLong)}}};
  std::vector<Outputs> outputs(3);
  for (const int model : {1, 2}) {
    FakeScript script;
    Start(MakeJob({1, 1, model}), script)->EvalBatch(batch, &outputs[model]);
  }
  ASSERT_EQ(outputs[2].list.size(), 2u);
  for (size_t m = 0; m < 2; ++m) {
    const at::Tensor &shared = outputs[2].list[m][0], &whole = outputs[1].list[m][0];
    ASSERT_EQ(shared.sizes(), whole.sizes());
    EXPECT_LE((shared - whole).abs().max().item<double>(), 1e-5);
  }
}

TEST(ModelAxisJobTest, FrozenLayersAreSharedToo) {
  const Value freeze = Value::List{1, "type:LayerNorm"};
  const Training shared = Train(MakeJob({1, 1, 2}, {{"freeze", freeze}}));
  const Training whole = Train(MakeJob({1, 1, 1}, {{"freeze", freeze}}));
  ExpectClose(shared.steps.back().loss, whole.steps.back().loss, "loss");
  ExpectClose(shared.steps.back().gradients, whole.steps.back().gradients);
  ExpectClose(shared.final, whole.final);
}

}  // namespace
}  // namespace strata
