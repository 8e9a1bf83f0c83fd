// Compares replicas with one replica that sees all micro-batches, in threads and in processes
// (Gloo).
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/comm/testing.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/job/data_source.h"
#include "engine/runtime/testing_job.h"
#include "engine/schedule/generators/generators.h"

namespace strata {
namespace {

const WithGradientBlocks kSmallBlocks(256);

using testing::FakeScript;
using testing::Make;
using testing::MapOf;
using testing::Require;
using testing::Rows;
using testing::RowsScript;

struct Sizes {
  int pipe = 1;
  int data = 1;
};

constexpr int kSteps = 4;

Value Parallel(const Sizes& sizes) { return MapOf({{"pipe", sizes.pipe}, {"data", sizes.data}}); }

/// A network with dropout, with a global batch of 12 micro-batches.
Job DropoutJob(const Sizes& sizes, int zero = 0, const Value::Map& more = {}) {
  return testing::MakeJob(
      testing::DropoutNet(), Make("CrossEntropyLoss"),
      testing::With(
          {{"input", MapOf({{"shape", Value::IntList({6})}})},
           {"parallel", Parallel(sizes)},
           {"batch", MapOf({{"micro_batches", 12 / sizes.data}, {"micro_batch_size", 8}})},
           {"data", MapOf({{"train", testing::Function(1)}})},
           {"optimizer", MapOf({{"1", "adamw"}, {"lr", 0.01}})},
           {"clip", 0.5},
           {"losses", true},
           {"zero", zero},
           {"steps", kSteps}},
          more));
}

std::vector<StepResult> Train(Engine& engine, int steps = kSteps) {
  std::vector<StepResult> results;
  engine.set_record_gradients(true);
  for (int step = 0; step < steps; ++step) results.push_back(engine.TrainStep());
  return results;
}

std::vector<StepResult> TrainInThreads(const Job& job) {
  FakeScript script = RowsScript();
  const auto engine = testing::Start(job, script);
  auto results = Train(*engine);
  engine->Close();
  return results;
}

bool Near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(1.0, std::abs(b)); }

/// Requires that a grid's results equal those of one replica. Throws Error.
void RequireEqual(const std::vector<StepResult>& grid, const std::vector<StepResult>& one) {
  for (size_t step = 0; step < one.size(); ++step) {
    Require(Near(grid[step].loss, one[step].loss),
            Str("loss ", one[step].loss, " in step ", step, ", got ", grid[step].loss));
    Require(Near(grid[step].grad_norm, one[step].grad_norm),
            Str("norm ", one[step].grad_norm, " in step ", step, ", got ", grid[step].grad_norm));
    Require(grid[step].samples == one[step].samples, "the same number of samples");
    Require(grid[step].micro_batch_losses.size() == one[step].micro_batch_losses.size(),
            "as many micro-batches");
  }
  // Before the first update nothing differs: parameters, data and dropout masks are equal.
  Require(grid[0].micro_batch_losses == one[0].micro_batch_losses,
          "equal bits of the first losses");
  Require(grid[0].loss == one[0].loss, "equal bits of the first loss");
}

void ExpectEqual(const std::vector<StepResult>& some, const std::vector<StepResult>& others,
                 const std::string& which) {
  ASSERT_EQ(some.size(), others.size());
  for (size_t step = 0; step < some.size(); ++step) {
    EXPECT_EQ(some[step].loss, others[step].loss) << which;
    EXPECT_EQ(some[step].grad_norm, others[step].grad_norm) << which;
    ASSERT_EQ(some[step].gradients.size(), others[step].gradients.size()) << which;
    for (size_t i = 0; i < some[step].gradients.size(); ++i) {
      EXPECT_EQ(some[step].gradients[i].digest, others[step].gradients[i].digest) << which << i;
    }
  }
}

class DataAxisTest : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(DataAxisTest, ReplicasEqualOneThatSeesAllMicroBatches) {
  const Sizes sizes = {std::get<0>(GetParam()), std::get<1>(GetParam())};
  EXPECT_NO_THROW(RequireEqual(TrainInThreads(DropoutJob(sizes)), TrainInThreads(DropoutJob({}))));
}

TEST_P(DataAxisTest, ShardedStateChangesNoBit) {
  const Sizes sizes = {std::get<0>(GetParam()), std::get<1>(GetParam())};
  const auto whole = TrainInThreads(DropoutJob(sizes));
  for (const int zero : {1, 2}) {
    ExpectEqual(TrainInThreads(DropoutJob(sizes, zero)), whole, Str("zero = ", zero));
  }
}

/// Trains every schedule with two of the variants, and 1f1b with all of them.
TEST(DataAxisTest, ShardedGradientsChangeNoBitWithAnySchedule) {
  const Value half = MapOf({{"1", "bf16"}, {"params", "bf16"}, {"reduce", "bf16"}});
  const std::vector<Value::Map> variants = {
      {},
      {{"recompute", true}},
      {{"recompute", MapOf({{"every", 1}})}},
      {{"precision", "bf16"}},
      {{"precision", half}, {"ema", 0.9}},
      {{"precision", MapOf({{"1", "fp16"}, {"scale", 1024.0}})}},
      {{"freeze", Value::List{0, 3}}},
      {{"nonfinite", "skip"}}};
  size_t next = 0;
  const auto expect_equal = [&](const std::string& schedule, int stages, int64_t micro_batches) {
    const Value::Map& variant = variants[next++ % variants.size()];
    const auto train = [&](int zero) {
      Job job = DropoutJob({2, 2}, zero, variant);
      job.schedule.name = schedule;
      job.stages_per_rank = stages;
      job.batch = {.micro_batches = micro_batches, .micro_batch_size = 8};
      return TrainInThreads(job);
    };
    ExpectEqual(train(2), train(0),
                Str(schedule, ", ", stages, " stages, ", MapOf(variant).ToJson()));
  };
  for (const std::string& schedule : schedule::GeneratorNames()) {
    if (schedule == "auto" || schedule == "inference") continue;
    for (const int stages : {1, 2, 3}) {
      const schedule::Sizes sizes = {.ranks = 2, .stages_per_rank = stages, .micro_batches = 4};
      if (!schedule::Fits(schedule, sizes)) continue;
      for (int i = 0; i < 2; ++i) expect_equal(schedule, stages, 4);
    }
  }
  for (const int64_t micro_batches : {1, 4}) {
    for (size_t i = 0; i < variants.size(); ++i) expect_equal("1f1b", 1, micro_batches);
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, DataAxisTest,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::Values(2, 3, 4)),
                         [](const auto& info) {
                           return Str("pipe", std::get<0>(info.param), "_data",
                                      std::get<1>(info.param));
                         });

Job ImageJob(const Sizes& sizes, int micro_batches, const Value& optimizer) {
  return testing::ImageJob(
      50, {{"parallel", Parallel(sizes)},
           {"batch", MapOf({{"micro_batches", micro_batches}, {"micro_batch_size", 4}})},
           {"eval", MapOf({{"batch", 7}})},
           {"optimizer", optimizer},
           {"epochs", 2}});
}

TEST(DataAxisTest, ShortLastStepsAndReplicasWithoutDataWork) {
  const Value sgd = MapOf({{"1", "sgd"}, {"lr", 0.1}});
  FakeScript script;
  const auto one = testing::Start(ImageJob({1, 1}, 4, sgd), script);
  Job job = ImageJob({2, 2}, 2, sgd);
  job.zero = 2;
  const auto two = testing::Start(job, script);
  ASSERT_EQ(one->steps_per_epoch(), 4);  // of 16, 16, 16 and 2 samples
  ASSERT_EQ(two->steps_per_epoch(), 4);
  for (int step = 0; step < 8; ++step) {
    const StepResult expected = one->TrainStep(), result = two->TrainStep();
    EXPECT_EQ(result.samples, step % 4 == 3 ? 2 : 16);
    EXPECT_EQ(result.samples, expected.samples);
    EXPECT_NEAR(result.loss, expected.loss, 1e-6);
    EXPECT_NEAR(result.grad_norm, expected.grad_norm, 1e-6);
  }
}

// With two micro-batches a rank completes the gradients of stage 0 first, with one those of stage
// 3.
TEST(DataAxisTest, StagesOfARankAreSummedInOneOrder) {
  FakeScript script;
  script.functions[2] = [](const Value::List&) -> Value {
    return "0F0,3F0,3I0,3W0,0B0,0F1,3F1,3I1,0B1,3W1\n1F0,2F0,2B0,1B0,1F1,2F1,2B1,1B1\n";
  };
  const auto start = [&script](const Value::Map& keys) {
    Job job = testing::ImageJob(
        28,
        testing::With({{"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.1}})}, {"epochs", 2}}, keys));
    const LayerSpec linear = Make("Linear", {16, 16});
    job.layers = {Make("Flatten"), linear, linear, linear, linear};
    return testing::Start(job, script);
  };
  const auto batch = [](int micro_batches) {
    return MapOf({{"micro_batches", micro_batches}, {"micro_batch_size", 4}});
  };
  const auto one = start({{"batch", batch(4)}});
  const Value::Map on_grid = {{"batch", batch(2)},
                              {"parallel", Parallel(Sizes{2, 2})},
                              {"partition", Value::IntList({0, 2, 3, 4, 5})},
                              {"schedule", testing::Function(2)}};
  const auto two = start(on_grid), sharded = start(testing::With(on_grid, {{"zero", 2}}));
  for (int step = 0; step < 4; ++step) {  // of 16 and 12 samples: 2 micro-batches and 1
    const StepResult expected = one->TrainStep(), result = two->TrainStep();
    EXPECT_EQ(result.samples, step % 2 == 0 ? 16 : 12);
    EXPECT_NEAR(result.loss, expected.loss, 1e-6);
    EXPECT_NEAR(result.grad_norm, expected.grad_norm, 1e-6);
    const StepResult shared = sharded->TrainStep();
    EXPECT_EQ(shared.loss, result.loss);
    EXPECT_EQ(shared.grad_norm, result.grad_norm);
  }
}

TEST(DataAxisTest, TestDataIsSharedOutAndSeenOnce) {
  // Without updates, all evaluations see the same network.
  const Value no_sgd = MapOf({{"1", "sgd"}, {"lr", 0.0}});
  std::vector<EvalResult> results;
  for (const Sizes& sizes : {Sizes{1, 1}, Sizes{1, 2}, Sizes{2, 3}, Sizes{1, 8}}) {
    FakeScript script;
    const auto engine = testing::Start(ImageJob(sizes, 4, no_sgd), script);
    results.push_back(engine->EvaluateTestData());
    EXPECT_EQ(results.back().samples, 45) << sizes.data;
    EXPECT_NEAR(results.back().loss, results[0].loss, 1e-6);
    EXPECT_DOUBLE_EQ(results.back().metric, results[0].metric);
  }
}

/// Eight copies of one micro-batch.
MicroBatches SameImages() {
  MicroBatches batches;
  const at::Tensor image = at::arange(4 * 16, at::kFloat).mul(0.7).sin().view({4, 1, 4, 4});
  for (int i = 0; i < 8; ++i) batches.list.push_back({{image}, {at::arange(4)}});
  return batches;
}

TEST(DataAxisTest, AllReplicasStayEqual) {
  FakeScript script;
  const auto engine =
      testing::Start(ImageJob({2, 4}, 1, MapOf({{"1", "sgd"}, {"lr", 0.1}})), script);
  for (int step = 0; step < 5; ++step) engine->TrainStep();
  MicroBatches batches = SameImages();
  Outputs outputs;
  EXPECT_EQ(engine->EvalBatch(batches, &outputs).samples, 32);
  ASSERT_EQ(outputs.list.size(), 8u);
  for (const Tensors& output : outputs.list) {
    EXPECT_TRUE(at::equal(output[0], outputs.list[0][0]));
  }
}

TEST(DataAxisTest, WhoeverWaitsForAReplicaSaysSo) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  FakeScript script;
  script.data[1] = [&](int64_t i) {
    if (i == 7) released.wait();  // the second micro-batch of replica 1
    return Rows(i);
  };
  const auto engine = testing::Start(DropoutJob({1, 2}), script);
  auto step = std::async(std::launch::async, [&] { return engine->TrainStep(); });
  const std::string expected =
      "rank 0 (stage 0): 0STEP, waiting for rank 1 in REDUCE_GRAD of stage 0";
  while (engine->Position().find(expected) == std::string::npos) std::this_thread::yield();
  release.set_value();
  EXPECT_EQ(step.get().samples, 96);
}

TEST(DataAxisTest, GivenMicroBatchesAreSharedOut) {
  FakeScript script = RowsScript();
  const auto one = testing::Start(DropoutJob({1, 1}), script);
  const auto three = testing::Start(DropoutJob({2, 3}), script);
  for (const int count : {12, 7, 3, 1}) {
    MicroBatches batches;
    for (int i = 0; i < count; ++i) batches.list.push_back(Rows(i));
    const EvalResult expected = one->EvalBatch(batches, nullptr);
    const EvalResult result = three->EvalBatch(batches, nullptr);
    EXPECT_EQ(result.samples, 8 * count);
    EXPECT_NEAR(result.loss, expected.loss, 1e-6);
  }
  for (const int count : {7, 1, 12}) {
    MicroBatches batches;
    for (int i = 0; i < count; ++i) batches.list.push_back(Rows(i));
    EXPECT_EQ(three->TrainStep(&batches).samples, 8 * count);
  }
}

/// A batch of another size is divided evenly, and random draws are those of one replica.
TEST(DataAxisTest, GivenMicroBatchesDrawAsOnOneReplica) {
  FakeScript script = RowsScript();
  const auto one = testing::Start(DropoutJob({1, 1}), script);
  const auto three = testing::Start(DropoutJob({2, 3}), script);
  for (const int count : {7, 12, 1, 14}) {
    MicroBatches batches;
    for (int i = 0; i < count; ++i) batches.list.push_back(Rows(i));
    const StepResult expected = one->TrainStep(&batches), result = three->TrainStep(&batches);
    EXPECT_NEAR(result.loss, expected.loss, 1e-5) << count;
    EXPECT_NEAR(result.grad_norm, expected.grad_norm, 1e-5) << count;
  }
}

TEST(DataAxisTest, ShardedStateTakesLessMemory) {
  // One layer of a million elements, whose two moments would take 8 MB on every replica.
  const auto peak = [](int zero) {
    Job job = DropoutJob({1, 2}, zero);
    job.layers = {Make("Linear", {6, 160000}), Make("Linear", {160000, 5})};
    FakeScript script = RowsScript();
    const auto engine = testing::Start(job, script);
    engine->TrainStep();
    return engine->TrainStep().peak_memory;
  };
  const double saved = static_cast<double>(peak(0) - peak(1));
  EXPECT_GT(saved, 0.8 * 1.92e6 * 4);  // half of two moments of 1.92M floats
}

class DataAxisGlooTest : public ::testing::TestWithParam<int> {};

TEST_P(DataAxisGlooTest, ProcessesEqualThreads) {
  const Sizes sizes = {2, 2};
  const int zero = GetParam();
  testing::ExpectAllWell(testing::RunProcesses(4, [&](const RankPlace& place) {
    const Job job = DropoutJob(sizes, zero);
    FakeScript script = RowsScript();
    const Plan plan = MakePlan(job, {}, &script);
    const auto engine = MakeRankEngine(
        job, plan, script, MakeGlooTransport(place, LinksOf(plan), GroupsOf(plan), 60), place);
    const auto over_gloo = Train(*engine);
    const auto in_threads = TrainInThreads(DropoutJob(sizes));
    for (int step = 0; step < kSteps; ++step) {
      Require(over_gloo[step].loss == in_threads[step].loss, "the bits of threads");
      Require(over_gloo[step].gradients[0].digest == in_threads[step].gradients[0].digest,
              "the gradients of threads");
    }
    RequireEqual(over_gloo, TrainInThreads(DropoutJob({})));
    engine->Parameters();  // all meet here before rank 0 leaves
    engine->Close();
  }));
}

INSTANTIATE_TEST_SUITE_P(Zero, DataAxisGlooTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace strata
