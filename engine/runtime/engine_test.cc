// Tests of engines as their users see them; all ranks are threads.
#include "engine/runtime/engine.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <future>
#include <latch>
#include <thread>

#include "engine/base/machine/cores.h"
#include "engine/base/progress_line.h"
#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/comm/transports/thread_transport.h"
#include "engine/job/data_source.h"
#include "engine/layers/loss_scope.h"
#include "engine/runtime/testing_job.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using testing::FakeScript;
using testing::Function;
using ::testing::HasSubstr;
using testing::Make;
using testing::MapOf;
using testing::Rows;
using testing::RowsScript;
using testing::Start;
using testing::With;

Value::Map Keys(int pipe, const std::string& schedule = "1f1b") {
  return {{"input", MapOf({{"shape", Value::IntList({6})}})},
          {"parallel", MapOf({{"pipe", pipe}})},
          {"schedule", schedule},
          {"data", MapOf({{"train", Function(1)}})},
          {"optimizer", MapOf({{"1", "adamw"}, {"lr", 0.01}})},
          {"clip", 0.5},
          {"steps", 4}};
}

Job MakeJob(const Value::Map& keys) {
  return testing::MakeJob(testing::DropoutNet(), Make("CrossEntropyLoss"), keys);
}

// ---- Bits ----

/// All results of a training whose bits must not depend on the plan.
struct Bits {
  std::vector<double> numbers;
  std::vector<std::string> digests;
  bool operator==(const Bits&) const = default;

  void Add(const StepResult& step) {
    numbers.insert(numbers.end(), {step.loss, step.grad_norm, step.lr});
    numbers.insert(numbers.end(), step.micro_batch_losses.begin(), step.micro_batch_losses.end());
    Add(step.gradients);
  }
  void Add(const std::vector<TensorDigest>& tensors) {
    for (const TensorDigest& tensor : tensors) digests.push_back(tensor.path + tensor.digest);
  }
};

Bits Train(
    const Job& job, const std::function<void(Engine&)>& between = [](Engine&) {}) {
  FakeScript script = RowsScript();
  const auto engine = Start(job, script);
  engine->set_record_gradients(true);
  Bits bits;
  for (int step = 0; step < 3; ++step) {
    between(*engine);
    bits.Add(engine->TrainStep());
  }
  bits.Add(engine->Parameters());
  engine->Close();
  return bits;
}

Bits TrainOnOneRank() { return Train(MakeJob(With(Keys(1), {{"losses", true}}))); }

class BitEqualityTest : public ::testing::TestWithParam<std::tuple<int, std::string>> {};

TEST_P(BitEqualityTest, PipeAndScheduleChangeNothing) {
  const auto& [pipe, schedule] = GetParam();
  const Bits bits = Train(MakeJob(With(Keys(pipe, schedule), {{"losses", true}})));
  // Three steps and the parameters: 4 layers with 2 parameters.
  EXPECT_EQ(bits.digests.size(), 4 * 8u);
  EXPECT_EQ(bits, TrainOnOneRank());
}

INSTANTIATE_TEST_SUITE_P(All, BitEqualityTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 7),
                                            ::testing::Values("gpipe", "1f1b")),
                         [](const auto& info) {
                           return Str("pipe", std::get<0>(info.param), "_",
                                      std::get<1>(info.param));
                         });

/// A schedule with several stages per rank, or with split backwards.
struct ManyStages {
  const char* schedule;
  int pipe = 2;
  int stages_per_rank = 2;
};

class ManyStagesTest : public ::testing::TestWithParam<ManyStages> {};

TEST_P(ManyStagesTest, ChangeNothing) {
  const ManyStages& many = GetParam();
  const Bits bits =
      Train(MakeJob(With(Keys(many.pipe, many.schedule),
                         {{"losses", true}, {"stages_per_rank", many.stages_per_rank}})));
  EXPECT_EQ(bits.digests.size(), 4 * 8u);
  EXPECT_EQ(bits, TrainOnOneRank());
}

INSTANTIATE_TEST_SUITE_P(
    All, ManyStagesTest,
    ::testing::Values(ManyStages{"interleaved_1f1b", 1, 4}, ManyStages{"interleaved_1f1b", 2, 2},
                      ManyStages{"interleaved_1f1b", 2, 3}, ManyStages{"interleaved_1f1b", 3, 2},
                      ManyStages{"looped_bfs", 2, 3}, ManyStages{"looped_bfs", 3, 2},
                      ManyStages{"zb_h1", 3, 1}, ManyStages{"zb_h2", 3, 1},
                      ManyStages{"interleaved_zb", 2, 3}, ManyStages{"interleaved_zb", 3, 2},
                      ManyStages{"zbv", 1}, ManyStages{"zbv", 2}, ManyStages{"zbv", 3},
                      ManyStages{"v_half", 2}, ManyStages{"v_half", 3}, ManyStages{"v_min", 2},
                      ManyStages{"v_min", 3}, ManyStages{"dualpipev", 2}),
    [](const auto& info) {
      return Str(info.param.schedule, "_", info.param.pipe, "x", info.param.stages_per_rank);
    });

class EngineTest : public ::testing::Test {
 protected:
  FakeScript script = RowsScript();
};

using EngineErrorTest = EngineTest;

// Dropout draws the same numbers again, and nothing else changes either.
TEST_F(EngineTest, RecomputationChangesNothing) {
  const Bits expected = TrainOnOneRank();
  const auto train = [](int pipe, const char* schedule, int stages_per_rank, Value recompute) {
    return Train(MakeJob(With(Keys(pipe, schedule), {{"losses", true},
                                                     {"stages_per_rank", stages_per_rank},
                                                     {"recompute", std::move(recompute)}})));
  };
  EXPECT_EQ(train(1, "1f1b", 1, true), expected);
  EXPECT_EQ(train(1, "1f1b", 1, MapOf({{"every", 2}})), expected);
  EXPECT_EQ(train(2, "gpipe", 1, MapOf({{"every", 1}})), expected);
  EXPECT_EQ(train(2, "1f1b", 1, Value::List{1, "type:LayerNorm", 6}), expected);
  EXPECT_EQ(train(2, "zbv", 2, true), expected);
  EXPECT_EQ(train(2, "dualpipev", 2, MapOf({{"every", 2}})), expected);
  EXPECT_EQ(train(3, "zb_h1", 1, "type:Linear|Dropout"), expected);
}

// Evaluation runs on the same stages, whether the first and the last are on one rank or not.
TEST_F(EngineTest, ManyStagesEvaluate) {
  const auto evaluate = [](Value::Map keys) {
    FakeScript script = RowsScript();
    const auto engine = Start(MakeJob(std::move(keys)), script);
    MicroBatches batch;
    for (int64_t i = 0; i < 5; ++i) batch.list.push_back(Rows(i, 3 + i));
    const double loss = engine->EvalBatch(batch, nullptr).loss;
    engine->Close();
    return loss;
  };
  const double expected = evaluate(Keys(1));
  EXPECT_EQ(evaluate(With(Keys(2, "zbv"), {{"stages_per_rank", 2}})), expected);
  EXPECT_EQ(evaluate(With(Keys(2, "interleaved_1f1b"), {{"stages_per_rank", 3}})), expected);
}

TEST_F(EngineTest, SplitBackwardAndRecomputationChangeNothing) {
  Job job = MakeJob(With(Keys(2), {{"losses", true}}));
  job.schedule.name = "csv";
  job.schedule.source =
      "0F0,0F1,0F2,0R0,0B0,0F3,0I1,0I2,0W1,0W2,0B3\n"
      "1F0,1B0,1F1,1I1,1F2,1I2,1W1,1F3,1R3,1B3,1W2\n";
  // Stage 1 accumulates micro-batch 3 before 2, so only the loss of the first step is equal.
  const double whole = Start(MakeJob(Keys(1)), script)->TrainStep().loss;
  EXPECT_EQ(Start(job, script)->TrainStep().loss, whole);
  // If all stages accumulate in ascending order, everything is equal.
  job.schedule.source =
      "0F0,0F1,0F2,0R0,0B0,0F3,0I1,0I2,0W1,0W2,0B3\n"
      "1F0,1B0,1F1,1I1,1F2,1I2,1W1,1W2,1F3,1R3,1B3\n";
  EXPECT_EQ(Train(job), TrainOnOneRank());
}

// Proving a program takes time for the actions of all ranks, so it must be done once.
TEST_F(EngineTest, AProgramIsMadeOnceForAllRanks) {
  Job job = MakeJob(Keys(3));
  job.schedule.name = "function";
  job.schedule.function = {1, "net.lua:9", "d"};
  std::atomic<int> made = 0;
  script.functions[1] = [&](const Value::List&) {
    ++made;
    return Value(
        "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n"
        "2F0,2F1,2F2,2F3,2B0,2B1,2B2,2B3\n");
  };
  const Plan plan = PlanJob(job, {}, &script);
  made = 0;
  const auto engine = MakeThreadsEngine(job, plan, script);
  engine->TrainStep();
  engine->TrainStep();
  EXPECT_EQ(made, 1);
}

TEST_F(EngineTest, EvaluationsBetweenStepsChangeNothing) {
  const Bits bits = Train(MakeJob(With(Keys(3), {{"losses", true}})), [](Engine& engine) {
    MicroBatches batch;  // of another number and size of micro-batches
    batch.list = {Rows(100, 3), Rows(101, 7), Rows(102, 1)};
    engine.EvalBatch(batch, nullptr);
  });
  EXPECT_EQ(bits, TrainOnOneRank());
}

TEST_F(EngineTest, StepsOfAnotherNumberOfMicroBatchesComeBetween) {
  const auto train = [](int pipe) {
    FakeScript script = RowsScript();
    const auto engine = Start(MakeJob(Keys(pipe)), script);
    Bits bits;
    for (const int count : {2, 4, 1, 7}) {
      MicroBatches batch;
      for (int m = 0; m < count; ++m) batch.list.push_back(Rows(m, m + 2));
      bits.Add(engine->TrainStep(&batch));
      bits.Add(engine->TrainStep());
    }
    bits.Add(engine->Parameters());
    return bits;
  };
  EXPECT_EQ(train(3), train(1));
}

// ---- Numbers ----

TEST_F(EngineTest, UnevenMicroBatchesEqualOneBigBatch) {
  const auto train = [](const std::vector<int64_t>& sizes) {
    FakeScript script = RowsScript();
    // Without dropout, whose draws depend on the micro-batch.
    const Job job =
        testing::MakeJob({Make("Linear", {6, 16}), Make("Tanh"), Make("Linear", {16, 5})},
                         Make("CrossEntropyLoss"), With(Keys(2), {{"clip", "none"}}));
    const auto engine = Start(job, script);
    const MicroBatch whole = Rows(0, 16);
    MicroBatches batch;
    int64_t begin = 0;
    for (const int64_t size : sizes) {
      batch.list.push_back(
          {{whole.input[0].narrow(0, begin, size)}, {whole.target[0].narrow(0, begin, size)}});
      begin += size;
    }
    std::vector<StepResult> steps;
    for (int step = 0; step < 3; ++step) steps.push_back(engine->TrainStep(&batch));
    return steps;
  };
  const auto big = train({16});
  const auto uneven = train({7, 7, 2});
  for (int step = 0; step < 3; ++step) {
    EXPECT_NEAR(uneven[step].loss, big[step].loss, 1e-6 * big[step].loss);
    EXPECT_NEAR(uneven[step].grad_norm, big[step].grad_norm, 1e-5 * big[step].grad_norm);
    EXPECT_EQ(uneven[step].samples, 16);
  }
}

TEST_F(EngineTest, TellsWhatAStepDid) {
  const auto engine = Start(MakeJob(With(Keys(2), {{"losses", true}})), script);
  engine->TrainStep();
  const StepResult step = engine->TrainStep();
  EXPECT_EQ(step.step, 1);
  EXPECT_EQ(step.samples, 32);
  EXPECT_EQ(step.lr, 0.01);
  EXPECT_GT(step.seconds, 0);
  EXPECT_GT(step.peak_memory, 4 * (32 * 24 + 24));
  ASSERT_EQ(step.micro_batch_losses.size(), 4u);
  double sum = 0;
  for (const double loss : step.micro_batch_losses) sum += loss;
  EXPECT_NEAR(step.loss, sum / 4, 1e-12);
  EXPECT_TRUE(step.gradients.empty());  // not asked for
  EXPECT_THAT(engine->Position(), "rank 0: at rest; rank 1: at rest");
  EXPECT_EQ(engine->steps_per_epoch(), 0);
}

// Ranks update before others are done, unless clipping makes them wait for the norm. With a limit
// that is never reached the bits must be the same.
TEST_F(EngineTest, AnUpdateDuringTheDrainHasTheBitsOfOneAfterIt) {
  const auto train = [](int pipe, const std::string& schedule, const Value& clip, int stages = 1) {
    FakeScript script = RowsScript();
    const Value::Map keys =
        With(Keys(pipe, schedule), {{"stages_per_rank", stages}, {"clip", clip}});
    const auto engine = Start(MakeJob(keys), script);
    Bits bits;
    for (int step = 0; step < 4; ++step) bits.Add(engine->TrainStep());
    bits.Add(engine->Parameters());
    return bits;
  };
  const Bits expected = train(1, "1f1b", 1e9);
  for (const int pipe : {2, 3}) {
    for (const char* schedule : {"1f1b", "gpipe", "zb_h1"}) {
      EXPECT_EQ(train(pipe, schedule, "none"), expected) << pipe << " " << schedule;
      EXPECT_EQ(train(pipe, schedule, 1e9), expected) << pipe << " " << schedule;
    }
    for (const char* schedule : {"interleaved_1f1b", "looped_bfs", "zbv"}) {
      EXPECT_EQ(train(pipe, schedule, "none", 2), expected) << pipe << " " << schedule;
    }
  }
}

TEST_F(EngineTest, GradientsAreRecordedInTheOrderOfLayers) {
  const auto engine = Start(MakeJob(Keys(3)), script);
  engine->set_record_gradients(true);
  const StepResult step = engine->TrainStep();
  std::vector<std::string> paths;
  double squares = 0;
  for (const TensorDigest& gradient : step.gradients) {
    paths.push_back(gradient.path);
    squares += gradient.norm * gradient.norm;
  }
  EXPECT_THAT(paths, ElementsAre("0.weight", "0.bias", "3.weight", "3.bias", "4.weight", "4.bias",
                                 "6.weight", "6.bias"));
  EXPECT_NEAR(std::sqrt(squares), step.grad_norm, 1e-12);
}

TEST_F(EngineTest, FrozenLayersStayAndAreNotInTheNorm) {
  const Job job = MakeJob(With(Keys(2), {{"freeze", Value::List{0, "type:LayerNorm"}}}));
  const auto engine = Start(job, script);
  engine->set_record_gradients(true);
  const auto before = engine->Parameters();
  EXPECT_EQ(engine->TrainStep().gradients.size(), 4u);
  const auto after = engine->Parameters();
  for (size_t i = 0; i < before.size(); ++i) {
    const bool frozen = i < 4;
    EXPECT_EQ(before[i].digest == after[i].digest, frozen) << before[i].path;
  }
}

TEST_F(EngineTest, ClippingBoundsTheStep) {
  const auto moved = [](double clip) {
    FakeScript script = RowsScript();
    const Value::Map keys = With(Keys(2), {{"clip", clip > 0 ? Value(clip) : Value("none")},
                                           {"optimizer", MapOf({{"1", "sgd"}, {"lr", 1.0}})}});
    const auto engine = Start(testing::MakeJob({Make("Linear", {6, 5}), Make("Identity")},
                                               Make("CrossEntropyLoss"), keys),
                              script);
    const auto norms = [&] {
      std::vector<double> norms;
      for (const TensorDigest& parameter : engine->Parameters()) norms.push_back(parameter.norm);
      return norms;
    };
    const auto before = norms();
    const StepResult step = engine->TrainStep();
    double change = 0;
    for (size_t i = 0; i < before.size(); ++i) change += std::abs(norms()[i] - before[i]);
    return std::pair(step.grad_norm, change);
  };
  const auto [norm, free_change] = moved(0);
  const auto [clipped_norm, clipped_change] = moved(norm / 1000);
  EXPECT_EQ(norm, clipped_norm);  // reported before clipping
  EXPECT_LT(clipped_change, free_change / 100);
  EXPECT_GT(clipped_change, 0);
}

TEST_F(EngineTest, TheScheduleOfTheRateIsAskedOncePerStep) {
  std::vector<int64_t> asked;
  script.functions[3] = [&](const Value::List& arguments) {
    asked.push_back(arguments[0].as_int());
    return Value(1.0 / static_cast<double>(1 + arguments[0].as_int()));
  };
  const Job job = MakeJob(With(Keys(3), {{"lr_schedule", Function(3)}}));
  const auto engine = Start(job, script);
  EXPECT_EQ(engine->TrainStep().lr, 0.01);
  EXPECT_EQ(engine->TrainStep().lr, 0.005);
  EXPECT_THAT(asked, ElementsAre(0, 1));
}

// ---- Evaluation ----

TEST_F(EngineTest, EvaluationGivesLossAccuracyAndOutputs) {
  MicroBatches batch;
  batch.list = {Rows(0, 3), Rows(1, 6)};
  batch.list[0].target[0][2] = -100;  // does not count
  std::vector<EvalResult> results;
  std::vector<Outputs> outputs(2);
  for (const int pipe : {1, 3}) {
    FakeScript script = RowsScript();
    const auto engine = Start(MakeJob(Keys(pipe)), script);
    engine->TrainStep();
    results.push_back(engine->EvalBatch(batch, &outputs[pipe / 3]));
  }
  ASSERT_EQ(outputs[1].list.size(), 2u);
  double loss = 0, correct = 0;
  for (int m = 0; m < 2; ++m) {
    const at::Tensor output = outputs[0].list[m][0], target = batch.list[m].target[0];
    EXPECT_TRUE(output.equal(outputs[1].list[m][0]));
    loss += at::cross_entropy_loss(output, target, {}, at::Reduction::Sum).item<double>();
    correct += output.argmax(1).eq(target).sum().item<double>();
  }
  EXPECT_EQ(results[0].loss, results[1].loss);
  EXPECT_NEAR(results[0].loss, loss / 8, 1e-6);
  EXPECT_EQ(results[0].samples, 9);
  EXPECT_TRUE(results[0].has_metric);
  EXPECT_DOUBLE_EQ(results[0].metric, correct / 8);
}

Job ImageJob(int pipe, int64_t eval_batch) {
  return testing::ImageJob(100, {{"parallel", MapOf({{"pipe", pipe}})},
                                 {"eval", MapOf({{"batch", eval_batch}})},
                                 {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.1}})},
                                 {"epochs", 2}});
}

TEST_F(EngineTest, TestDataIsSeenOnce) {
  std::vector<EvalResult> results;
  for (const int pipe : {1, 2}) {
    for (const int64_t batch : {7, 8}) {
      FakeScript script;
      const auto engine = Start(ImageJob(pipe, batch), script);
      engine->TrainStep();
      results.push_back(engine->EvaluateTestData());
      EXPECT_EQ(results.back().samples, 45);
      EXPECT_TRUE(results.back().has_metric);
      EXPECT_NEAR(results.back().loss, results[0].loss, 1e-6);
      EXPECT_DOUBLE_EQ(results.back().metric, results[0].metric);
    }
  }
  EXPECT_EQ(results[0].loss, results[2].loss);  // the bits do not depend on the cuts
}

/// With a clock that goes on by three seconds a look, each piece of work is heard.
TEST_F(EngineTest, SaysWhatItDoesAndRank0SpeaksForAll) {
  std::vector<std::string> lines;
  double now = 0;
  SetProgressOutput({.say = [&](const std::string& line) { lines.push_back(line); },
                     .now = [&] { return now += 3; }});
  FakeScript script;
  const auto engine = Start(ImageJob(2, 8), script);
  engine->EvaluateTestData();
  SetProgressOutput({});
  const auto of = [&](const std::string& what) {
    return std::ranges::count_if(lines, [&](const auto& line) { return line.starts_with(what); });
  };
  EXPECT_GT(of("building layers of stage 0, 1 of "), 0);
  EXPECT_EQ(of("building layers of stage 1"), 0);
  EXPECT_GT(of("placing parameters, "), 0);
  EXPECT_EQ(of("evaluating, 1 of "), 1);
}

TEST_F(EngineTest, AStopLeavesAnEvaluationBetweenTwoRuns) {
  for (const int64_t batch : {1, 45}) {
    FakeScript script;
    const auto engine = Start(ImageJob(2, batch), script);
    engine->RequestStop();
    const EvalResult result = engine->EvaluateTestData();
    EXPECT_EQ(result.stop, batch == 1) << "a single run is whole";
    EXPECT_EQ(result.samples, batch == 1 ? 0 : 45);
  }
}

/// A script whose loss has a part. Neither the part nor the weight sums up without rounding.
class ThirdsScript : public FakeScript {
 public:
  std::unique_ptr<Loss> BuildLoss(const LayerSpec&) override { return std::make_unique<Thirds>(); }

 private:
  struct Thirds : Loss {
    LossValue Compute(const Tensors& output, const Tensors& target) override {
      const at::Tensor sum = at::cross_entropy_loss(output[0], target[0], {}, at::Reduction::Sum);
      GiveLossParts({{"third", sum.detach().to(at::kDouble) / 3}});
      return {sum, static_cast<double>(target[0].numel()) / 3};
    }
  };
};

// Plans with more stages put more micro-batches into a run of the evaluation.
TEST_F(EngineTest, TestDataAddUpTheSameInAnyRuns) {
  std::vector<EvalResult> results;
  for (const int pipe : {1, 2, 3}) {
    Job job = ImageJob(pipe, 2);
    job.loss = testing::ScriptedLayer(1);
    job.eval.metric = "none";
    ThirdsScript script;
    results.push_back(Start(job, script)->EvaluateTestData());
    ASSERT_EQ(results.back().parts.size(), 1u);
    EXPECT_EQ(results.back().parts, results[0].parts) << pipe;
    EXPECT_EQ(results.back().loss, results[0].loss) << pipe;
  }
}

/// A job with test images and a layer that draws random numbers in evaluations as well, as a VAE's.
Job DrawingJob(int pipe, int data) {
  const auto images = testing::ImageJob(100, {}).test_data;
  Job job = testing::MakeJob({Make("Flatten"), testing::ScriptedLayer(5), Make("Linear", {16, 5})},
                             Make("CrossEntropyLoss"),
                             {{"input", MapOf({{"shape", Value::IntList({1, 4, 4})}})},
                              {"parallel", MapOf({{"pipe", pipe}, {"data", data}})},
                              {"steps", 4}});
  job.test_data = images;
  job.eval.batch = 2;
  return job;
}

TEST_F(EngineTest, DrawsOfEvaluationsDependOnTheMicroBatchAlone) {
  MicroBatches same;
  same.list.assign(6, {{at::ones({2, 1, 4, 4})}, {at::zeros({2}, at::kLong)}});
  std::vector<double> losses;
  std::vector<Outputs> outputs(4), evaluated(4);
  std::vector<std::string> predicted;
  for (const auto& [pipe, data] : {std::pair(1, 1), {2, 1}, {3, 1}, {2, 2}}) {
    FakeScript script;
    script.layers[5] = [](testing::FunctionLayer&, const Tensors& x, const Pass&) {
      return Tensors{x[0] + at::rand_like(x[0])};
    };
    const auto engine = Start(DrawingJob(pipe, data), script);
    engine->PredictBatch(same, outputs[losses.size()]);
    engine->EvalBatch(same, &evaluated[losses.size()]);
    losses.push_back(engine->EvaluateTestData().loss);
    predicted.emplace_back();
    for (int64_t part = 0; const auto rows = engine->PredictTestData(part); ++part) {
      for (const auto& block : *rows) predicted.back() += block.at(0).bytes;
    }
  }
  for (size_t i = 1; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], losses[0], 1e-6);
    EXPECT_EQ(predicted[i] == predicted[0], true) << i;
    for (size_t m = 0; m < same.list.size(); ++m) {
      EXPECT_TRUE(outputs[i].list[m][0].equal(outputs[0].list[m][0])) << i << " " << m;
      EXPECT_TRUE(evaluated[i].list[m][0].equal(outputs[0].list[m][0])) << i << " " << m;
    }
  }
  EXPECT_FALSE(outputs[0].list[0][0].equal(outputs[0].list[3][0]));
}

TEST_F(EngineTest, PredictionsAreARowForEachSample) {
  Job job = testing::MakeJob(
      {Make("Flatten"), Make("Linear", {16, 5}), Make("Flatten", {}, {{"start_dim", 0}})},
      Make("CrossEntropyLoss"), {{"input", MapOf({{"shape", Value::IntList({1, 4, 4})}})}});
  job.test_data = testing::ImageJob(100, {}).test_data;
  job.test_data.options.Set("targets", false);
  job.eval.batch = 2;
  const auto engine = Start(job, script);
  EXPECT_THAT(ConfigErrorOf([&] { engine->PredictTestData(0); }),
              HasSubstr("a row for each sample; the last layer gives float32 (10,) for 2 samples"));
}

TEST_F(EngineTest, PredictionsNeedNoLoss) {
  const auto predicted = [](int pipe, const LayerSpec& loss) {
    Job job = testing::MakeJob({Make("Flatten"), Make("Linear", {16, 5})}, Make("CrossEntropyLoss"),
                               {{"input", MapOf({{"shape", Value::IntList({1, 4, 4})}})},
                                {"parallel", MapOf({{"pipe", pipe}})}});
    job.test_data = testing::ImageJob(100, {}).test_data;
    job.eval.batch = 2;
    job.loss = loss;
    job.trains = false;
    FakeScript script;
    const auto engine = Start(job, script);
    std::string all;
    for (int64_t part = 0; const auto rows = engine->PredictTestData(part); ++part) {
      for (const auto& block : *rows) all += block.at(0).bytes;
    }
    return all;
  };
  for (const int pipe : {1, 2}) {
    const std::string with_loss = predicted(pipe, Make("CrossEntropyLoss"));
    EXPECT_EQ(with_loss.size(), 45u * 5 * 4);
    EXPECT_TRUE(predicted(pipe, LayerSpec()) == with_loss) << pipe;
  }
}

/// A job whose scripted layer 5 turns the rows of its 5 scores into three outputs.
Job SeveralOutputsJob(int pipe) {
  Job job = testing::MakeJob({Make("Flatten"), Make("Linear", {16, 5}), testing::ScriptedLayer(5)},
                             Make("TripletMarginLoss"),
                             {{"input", MapOf({{"shape", Value::IntList({1, 4, 4})}})},
                              {"parallel", MapOf({{"pipe", pipe}})}});
  job.test_data = testing::ImageJob(100, {}).test_data;
  job.test_data.options.Set("targets", false);
  job.eval.batch = 2;
  return job;
}

TEST_F(EngineTest, PredictionsAreAllOutputs) {
  for (const int pipe : {1, 2}) {
    FakeScript script;
    script.infer = [](const TensorSpecs& x) { return TensorSpecs{x[0], x[0], x[0]}; };
    script.layers[5] = [](testing::FunctionLayer&, const Tensors& x, const Pass&) {
      return Tensors{x[0], x[0] * 0 + 7, x[0].flip(1)};
    };
    const auto engine = Start(SeveralOutputsJob(pipe), script);
    int64_t samples = 0;
    for (int64_t part = 0; const auto rows = engine->PredictTestData(part); ++part) {
      for (const std::vector<OutputRows>& block : *rows) {
        ASSERT_EQ(block.size(), 3U);
        const int64_t count = block[0].spec.shape[0];
        EXPECT_EQ(block[1].spec, (TensorSpec{{count, 5}, DType::kFloat32}));
        for (int64_t i = 0; i < count; ++i) {
          const auto number = [&](size_t output, int64_t place) {
            float value = 0;
            std::memcpy(&value, block[output].bytes.data() + place * 4, 4);
            return value;
          };
          EXPECT_EQ(number(1, 5 * i + 4), 7);
          EXPECT_EQ(number(2, 5 * i), number(0, 5 * i + 4));
        }
        samples += count;
      }
    }
    EXPECT_EQ(samples, 45);
  }
}

/// Sequences have rows of several lengths. The last of 45 samples is a micro-batch of its own.
TEST_F(EngineTest, RowsOfAnotherShapeAreABlockOfTheirOwn) {
  const auto length = [](int64_t rows) -> int64_t { return rows == 1 ? 3 : 4; };
  script.infer = [&](const TensorSpecs& x) {
    const int64_t rows = x[0].shape[0];
    return TensorSpecs(3, {{rows, length(rows)}, x[0].dtype});
  };
  script.layers[5] = [&](testing::FunctionLayer&, const Tensors& x, const Pass&) {
    return Tensors(3, x[0].narrow(1, 0, length(x[0].size(0))));
  };
  const auto engine = Start(SeveralOutputsJob(1), script);
  Predicted last;
  for (int64_t part = 0; const auto rows = engine->PredictTestData(part); ++part) last = *rows;
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last[0].at(0).spec.shape, (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(last[1].at(0).spec.shape, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(last[1].at(0).bytes.size(), 12U);
}

TEST_F(EngineTest, PredictionsAreInTheOrderOfTheData) {
  const auto error_of = [](const char* option, const Value& value) {
    Job job = testing::ImageJob(8, {});
    DataSpec& data = job.test_data;
    Value source = data.options;
    source.Set("source", data.kind).Set("where", data.where).Set(option, value);
    const Value part = MakeDataStep("take", source, {20}, {}, "net.lua:8");
    data.kind = "concat";
    data.options = MakeDataStep("concat", Value::List{part, part}, {}, {}, "net.lua:7");
    data.options.Set(
        "facts", ToValue(DataFacts{40, {{{1, 4, 4}, DType::kFloat32}}, {{{}, DType::kInt64}}, 5}));
    FakeScript script;
    const auto engine = Start(job, script);
    return ConfigErrorOf([&] { engine->PredictTestData(0); });
  };
  EXPECT_EQ(error_of("shuffle", false), "no error");
  EXPECT_THAT(error_of("shuffle", true), HasSubstr("leave out data.test's shuffle"));
  EXPECT_THAT(error_of("broken", "skip"),
              HasSubstr("with data.test's broken=\"skip\" a broken file would get another one's"));
}

// Running statistics, which an evaluation shows, are updated once by a recomputed micro-batch.
TEST_F(EngineTest, RecomputationLeavesStatisticsAlone) {
  const auto train = [](int pipe, bool recompute) {
    FakeScript script;
    Job job = ImageJob(pipe, 8);
    if (recompute) job.recompute.method = RecomputeSpec::Method::kStages;
    const auto engine = Start(job, script);
    for (int step = 0; step < 3; ++step) engine->TrainStep();
    return engine->EvaluateTestData().loss;
  };
  const double expected = train(1, false);
  for (const int pipe : {1, 2}) EXPECT_EQ(train(pipe, true), expected) << pipe;
}

TEST_F(EngineTest, AnEpochEndsWithAShortStep) {
  const auto engine = Start(ImageJob(2, 8), script);
  ASSERT_EQ(engine->steps_per_epoch(), 4);  // 100 samples: 3 steps of 32, and one of 4
  std::vector<int64_t> samples;
  for (int step = 0; step < 8; ++step) samples.push_back(engine->TrainStep().samples);
  EXPECT_THAT(samples, ElementsAre(32, 32, 32, 4, 32, 32, 32, 4));
}

TEST_F(EngineTest, TheScheduleOfTheRateEndsWithTheTraining) {
  Job job = ImageJob(2, 8);
  job.epochs = 0.6;  // 2.4 steps of 4: rounded up
  job.lr_schedule = MakeJob(With(Keys(1), {{"lr_schedule", "cosine"}})).lr_schedule;
  const auto engine = Start(job, script);
  std::vector<double> rates;
  for (int step = 0; step < 3; ++step) rates.push_back(engine->TrainStep().lr);
  EXPECT_THAT(rates,
              ElementsAre(DoubleNear(0.1, 1e-9), DoubleNear(0.075, 1e-9), DoubleNear(0.025, 1e-9)));
}

TEST_F(EngineTest, TrainingOnADatasetIsTheSameForEveryPipe) {
  const auto losses = [](int pipe) {
    FakeScript script;
    const auto engine = Start(ImageJob(pipe, 8), script);
    std::vector<double> losses;
    for (int step = 0; step < 6; ++step) losses.push_back(engine->TrainStep().loss);
    return losses;
  };
  const auto one = losses(1);
  EXPECT_LT(one.back(), one.front());
  EXPECT_EQ(losses(2), one);
  EXPECT_EQ(losses(5), one);
}

// ---- Errors ----

/// A job of three stages: Linear, a scripted layer, Linear.
Job ScriptedJob() {
  return testing::MakeJob(
      {Make("Linear", {6, 8}), testing::ScriptedLayer(5), Make("Linear", {8, 5})},
      Make("CrossEntropyLoss"), With(Keys(3), {{"partition", Value::IntList({0, 1, 2, 3})}}));
}

TEST_F(EngineErrorTest, TheFirstCauseEndsAllRanks) {
  std::atomic<int> calls = 0;
  script.layers[5] = [&](testing::FunctionLayer&, const Tensors& x, const Pass&) -> Tensors {
    if (++calls == 6) throw ConfigError("net.lua:5: the sixth call fails");
    return x;
  };
  const auto engine = Start(ScriptedJob(), script);
  engine->TrainStep();
  EXPECT_EQ(ConfigErrorOf([&] { engine->TrainStep(); }), "net.lua:5: the sixth call fails");
  EXPECT_THAT(ErrorOf([&] { engine->TrainStep(); }), HasSubstr("can only be closed"));
  engine->Close();
}

TEST_F(EngineErrorTest, AnErrorInBackwardIsTold) {
  script.layers[5] = [](testing::FunctionLayer&, const Tensors& x, const Pass&) -> Tensors {
    const at::Tensor y = x[0] * 1;
    y.register_hook([](const at::Tensor&) -> void { TORCH_CHECK(false, "no way back"); });
    return {y};
  };
  const auto engine = Start(ScriptedJob(), script);
  const std::string error = ConfigErrorOf([&] { engine->TrainStep(); });
  EXPECT_THAT(error, HasSubstr("stage 1, backward of micro-batch 0: no way back"));
}

TEST_F(EngineErrorTest, AnErrorWhileBuildingIsTold) {
  Value::Map keys = With(Keys(3), {{"seed_fn", Function(4)}});
  script.functions[4] = [](const Value::List& arguments) -> Value {
    if (arguments[0].as_int() == 3) throw ConfigError("net.lua:8: no seed for layer 3");
    return 1;
  };
  EXPECT_EQ(ConfigErrorOf([&] { Start(MakeJob(keys), script); }), "net.lua:8: no seed for layer 3");
}

TEST_F(EngineTest, AFunctionMayGiveAnyNumberOfRows) {
  const auto train = [](int pipe) {
    FakeScript script;
    script.data[1] = [](int64_t i) { return Rows(i, i % 3 == 2 ? 7 : 8); };
    const auto engine = Start(MakeJob(Keys(pipe)), script);
    Bits bits;
    for (int step = 0; step < 3; ++step) bits.Add(engine->TrainStep());
    EXPECT_EQ(engine->TrainStep().samples, 31);  // micro-batches 12 to 15
    return bits;
  };
  EXPECT_EQ(train(3), train(1));
}

TEST_F(EngineErrorTest, DataOfAnotherShapeNamesBoth) {
  const auto engine = Start(MakeJob(Keys(2)), script);
  MicroBatches batch;
  batch.list = {{{at::zeros({8, 9})}, {at::zeros({8}, at::kLong)}}};
  EXPECT_EQ(
      ConfigErrorOf([&] { engine->TrainStep(&batch); }),
      "micro-batch 0 from the given micro-batches: net.lua:3: layer 0 Linear(6, 32) cannot take "
      "the input: expects last dim 6, got (8, 9)");
}

TEST_F(EngineErrorTest, GivenDataThatDoesNotFitEndsNothing) {
  for (const int pipe : {1, 3}) {
    FakeScript script = RowsScript();
    const auto engine = Start(MakeJob(Keys(pipe)), script);
    engine->TrainStep();
    MicroBatches wrong, labels, right;
    right.list = {Rows(0), Rows(1, 3)};
    wrong.list = {Rows(0), {{at::zeros({8, 9})}, {at::zeros({8}, at::kLong)}}};
    labels.list = {Rows(0), Rows(1)};
    labels.list[1].target[0][2] = 5;
    Outputs outputs;
    const auto names_input = HasSubstr("micro-batch 1 from the given micro-batches: net.lua:3: ");
    EXPECT_THAT(ConfigErrorOf([&] { engine->PredictBatch(wrong, outputs); }), names_input);
    EXPECT_THAT(ConfigErrorOf([&] { engine->EvalBatch(wrong, nullptr); }), names_input);
    EXPECT_THAT(ConfigErrorOf([&] { engine->TrainStep(&wrong); }), names_input);
    EXPECT_THAT(ConfigErrorOf([&] { engine->EvalBatch(labels, nullptr); }),
                AllOf(HasSubstr("micro-batch 1 from the given micro-batches: "), HasSubstr("label"),
                      HasSubstr("5")));
    engine->PredictBatch(labels, outputs);  // does not read the labels
    engine->PredictBatch(right, outputs);
    EXPECT_EQ(engine->EvalBatch(right, nullptr).samples, 11);
    EXPECT_EQ(engine->TrainStep(&right).step, 1);
  }
}

TEST_F(EngineErrorTest, GivenTokensBeyondTheTableEndNothing) {
  const auto engine =
      Start(testing::MakeJob({Make("Embedding", {4, 3}), Make("Linear", {3, 2})},
                             Make("CrossEntropyLoss"),
                             With(Keys(2), {{"data", Value()}, {"input", Value()}})),
            script);
  MicroBatches wrong, right;
  right.list = {{{at::tensor({0, 3}, at::kLong)}, {}}};
  wrong.list = {right.list[0], {{at::tensor({0, 4}, at::kLong)}, {}}};
  Outputs outputs;
  EXPECT_THAT(ConfigErrorOf([&] { engine->PredictBatch(wrong, outputs); }),
              HasSubstr("micro-batch 1 from the given micro-batches: expected a token from 0 to 3, "
                        "got 4 (there are 4 rows)"));
  engine->PredictBatch(right, outputs);
}

TEST_F(EngineErrorTest, MissingDataIsTold) {
  const auto engine = Start(MakeJob(With(Keys(1), {{"data", Value()}})), script);
  EXPECT_THAT(ConfigErrorOf([&] { engine->TrainStep(); }), HasSubstr("no data.train"));
}

TEST_F(EngineErrorTest, AbortEndsAStepThatWaits) {
  std::latch reading(1), go_on(1);
  script.data[1] = [&](int64_t i) {
    // Holds up rank 0, for which rank 1 waits.
    if (i == 1) {
      reading.count_down();
      go_on.wait();
    }
    return Rows(i, 8);
  };
  const auto engine = Start(MakeJob(Keys(2)), script);
  auto step = std::async(std::launch::async, [&] { engine->TrainStep(); });
  reading.wait();
  engine->Abort("the launcher says so");
  go_on.count_down();
  EXPECT_EQ(ErrorOf([&] { step.get(); }), "the launcher says so");
}

TEST_F(EngineErrorTest, TheWatchdogNamesWhoHangs) {
  std::latch released(1), left(1);
  script.layers[5] = [&](testing::FunctionLayer&, const Tensors& x, const Pass&) -> Tensors {
    released.wait();
    left.count_down();
    throw ConfigError("too late");
    return x;
  };
  Job job = ScriptedJob();
  job.hang_timeout = 0.2;
  const auto engine = Start(job, script);
  const std::string error = ErrorOf([&] { engine->TrainStep(); });
  EXPECT_THAT(error, HasSubstr("no action was completed for 200 ms: "));
  EXPECT_THAT(error, HasSubstr("rank 1 (stage 1): 1F0;"));
  EXPECT_THAT(error, HasSubstr("rank 2 (stage 2): 2F0, waiting for rank 1"));
  engine->Close();  // leaves the thread behind
  released.count_down();
  left.wait();
}

// ---- Ranks with their own engines ----

TEST(RankEngineTest, RanksMeetOverAnyTransport) {
  const Job job = MakeJob(Keys(2));
  FakeScript script = RowsScript();
  const Plan plan = MakePlan(job, {}, &script);
  auto transports = MakeThreadTransports(2, LinksOf(plan));
  std::vector<StepResult> results(2);
  {
    const auto programs = std::make_shared<ProvedPrograms>();
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        const auto engine =
            MakeRankEngine(job, plan, script, std::move(transports[rank]), {}, programs);
        engine->set_record_gradients(true);
        results[rank] = engine->TrainStep();
        engine->Close();
      });
    }
  }
  EXPECT_EQ(results[0].loss, results[1].loss);
  EXPECT_EQ(results[0].grad_norm, results[1].grad_norm);
  EXPECT_EQ(results[0].gradients.size(), 8u);
  EXPECT_EQ(results[0].gradients[7].digest, results[1].gradients[7].digest);
}

// Only the ranks of the same machine share its cores.
TEST(RankEngineTest, TheCoresOfAMachineAreSharedByItsRanks) {
  const Job job = MakeJob(With(Keys(1), {{"threads", Value()}}));
  std::atomic<int> threads = 0;
  FakeScript script = RowsScript();
  script.data[1] = [&](int64_t i) {
    threads = at::get_num_threads();
    return Rows(i, 8);
  };
  for (const int here : {1, 2, 1000}) {
    RankPlace place;
    place.local_world_size = here;
    const auto engine = MakeRankEngine(job, MakePlan(job, {}, &script), script,
                                       std::move(MakeThreadTransports(1, {})[0]), place);
    engine->TrainStep();
    engine->Close();
    EXPECT_EQ(threads, std::max(1, MachineCores() / here)) << here;
  }
}

TEST_F(EngineTest, CommLogCountsMessagesAndCollectivesOfAllRanks) {
  const Value::Map keys = With(Keys(2), {{"parallel", MapOf({{"pipe", 2}, {"data", 2}})},
                                         {"comm_log", true},
                                         {"partition", Value::List{0, 4, 7}}});
  const auto engine = Start(MakeJob(keys), script);
  EXPECT_EQ(engine->CommReport().find("send"), std::string::npos);
  engine->TrainStep();
  engine->TrainStep();
  const std::string report = engine->CommReport();
  // 8 rows of 32 numbers, forward and back, 4 micro-batches, 2 replicas, 2 steps.
  for (const char* what : {"send", "recv"}) {
    EXPECT_THAT(report, ::testing::ContainsRegex(Str(what, " +pipe +2 +1.00 KiB +32 ")));
  }
  EXPECT_THAT(report, ::testing::ContainsRegex("all_reduce +data +2 .* rank [0-3], "));
}

TEST(LinksOfTest, OneLinkForEachDirectionAndNeighbour) {
  FakeScript script = RowsScript();
  EXPECT_THAT(
      LinksOf(MakePlan(MakeJob(Keys(3)), {}, &script)),
      ElementsAre(LinkSpec{0, 1, 0}, LinkSpec{1, 0, 1}, LinkSpec{1, 2, 0}, LinkSpec{2, 1, 1}));
  EXPECT_THAT(LinksOf(MakePlan(MakeJob(Keys(1)), {}, &script)), ElementsAre());
  // A loop wraps around, but its stages share links; a V turns on one rank.
  const auto links_of = [&](const char* schedule, int pipe) {
    const Job job = MakeJob(With(Keys(pipe, schedule), {{"stages_per_rank", 2}}));
    return LinksOf(PlanJob(job, {}, &script));
  };
  EXPECT_THAT(links_of("interleaved_1f1b", 2), ElementsAre(LinkSpec{0, 1, 0}, LinkSpec{1, 0, 1},
                                                           LinkSpec{1, 0, 0}, LinkSpec{0, 1, 1}));
  EXPECT_THAT(links_of("zbv", 2), ElementsAre(LinkSpec{0, 1, 0}, LinkSpec{1, 0, 1},
                                              LinkSpec{1, 0, 0}, LinkSpec{0, 1, 1}));
  EXPECT_THAT(links_of("interleaved_1f1b", 1), ElementsAre());
}

}  // namespace
}  // namespace strata
