// Tests of what a training does besides its steps: optimizer state, averages, metrics, the best
// save.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>

#include "engine/base/testing.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/job/job_fields.h"
#include "engine/runtime/testing_job.h"
#include "engine/runtime/update/reductions.h"

namespace strata {
namespace {

const WithGradientBlocks kSmallBlocks(256);

using testing::FakeScript;
using testing::MapOf;
using testing::Start;

Value Grid(int pipe, int data) { return MapOf({{"pipe", pipe}, {"data", data}}); }

/// An optimizer of the given type that can update all layers of the image network.
Value OfType(const std::string& type) {
  Value::Map options = {{"1", type}, {"lr", 0.01}};
  if (type == "muon") {
    options.emplace_back("groups", Value::List{MapOf({{"1", "adamw"}, {"dims", "!=2"}})});
  }
  return MapOf(std::move(options));
}

/// Makes an empty folder for saves.
std::string NewFolder() {
  std::string name = ::testing::TempDir() + "training-XXXXXX";
  STRATA_CHECK(::mkdtemp(name.data()) != nullptr) << name;
  return name;
}

/// An image job with 32 samples per step on any grid.
Job ImageJob(int pipe, int data, Value::Map keys) {
  keys.emplace_back("parallel", Grid(pipe, data));
  keys.emplace_back("steps", 6);
  keys.emplace_back("batch", MapOf({{"micro_batches", 4 / data}, {"micro_batch_size", 8}}));
  return testing::ImageJob(100, std::move(keys));
}

std::vector<std::string> DigestsOf(Engine& engine) {
  std::vector<std::string> digests;
  for (const TensorDigest& tensor : engine.Parameters()) digests.push_back(tensor.digest);
  return digests;
}

std::vector<std::string> Trained(const Job& job, int steps) {
  FakeScript script;
  const auto engine = Start(job, script);
  for (int i = 0; i < steps; ++i) engine->TrainStep();
  return DigestsOf(*engine);
}

TEST(Optimizers, HaveTheBitsOfOneRankOnAnyGrid) {
  for (const OptionTable& type : OptimizerTypes()) {
    const Value::Map keys = {{"optimizer", OfType(type.name)}, {"ema", 0.9}};
    EXPECT_EQ(Trained(ImageJob(2, 1, keys), 3), Trained(ImageJob(1, 1, keys), 3)) << type.name;
    const auto replicas = Trained(ImageJob(1, 2, keys), 3);
    for (const int zero : {1, 2}) {
      if (type.sees != OptionTable::Sees::kElements) continue;
      const Value::Map shared = testing::With(keys, {{"zero", zero}});
      EXPECT_EQ(Trained(ImageJob(1, 2, shared), 3), replicas) << type.name << zero;
    }
  }
}

TEST(Optimizers, GoOnFromASave) {
  for (const OptionTable& type : OptimizerTypes()) {
    const std::string dir = NewFolder();
    const auto keys = [&](bool resumes) {
      Value::Map all = {
          {"optimizer", OfType(type.name)}, {"ema", 0.9}, {"save", MapOf({{"dir", dir}})}};
      if (resumes) all.emplace_back("resume", "latest");
      return all;
    };
    {
      FakeScript script;
      const auto engine = Start(ImageJob(1, 1, keys(false)), script);
      for (int i = 0; i < 2; ++i) engine->TrainStep();
      engine->Save();
    }
    FakeScript script;
    const auto engine = Start(ImageJob(2, 1, keys(true)), script);
    EXPECT_EQ(engine->start().step, 2);
    for (int i = 0; i < 2; ++i) engine->TrainStep();
    const Value::Map plain = {{"optimizer", OfType(type.name)}};
    EXPECT_EQ(DigestsOf(*engine), Trained(ImageJob(1, 1, plain), 4)) << type.name;
  }
}

TEST(Averages, AreWhatEvaluationsSee) {
  const auto run = [](int pipe, int data, Value::Map keys) {
    keys.emplace_back("optimizer", OfType("sgd"));
    FakeScript script;
    const auto engine = Start(ImageJob(pipe, data, std::move(keys)), script);
    for (int i = 0; i < 3; ++i) engine->TrainStep();
    const double loss = engine->EvaluateTestData().loss;
    return std::pair(loss, DigestsOf(*engine));
  };
  const auto plain = run(1, 1, {}), averaged = run(1, 1, {{"ema", 0.9}});
  EXPECT_NE(averaged.first, plain.first);
  EXPECT_EQ(averaged.second, plain.second) << "the training is the same, behind an evaluation too";
  EXPECT_EQ(run(2, 1, {{"ema", 0.9}}), averaged);
  for (const int zero : {1, 2}) {
    EXPECT_EQ(run(1, 2, {{"ema", 0.9}, {"zero", zero}}), run(1, 2, {{"ema", 0.9}}));
  }
  const std::pair<std::string, Value> half = {"precision",
                                              MapOf({{"1", "bf16"}, {"params", "bf16"}})};
  const auto rounded = run(1, 1, {half, {"ema", 0.9}});
  EXPECT_NE(rounded.first, run(1, 1, {half}).first);
  EXPECT_EQ(rounded.second, run(1, 1, {half}).second);
  EXPECT_EQ(run(2, 1, {half, {"ema", 0.9}}), rounded);
  EXPECT_EQ(run(1, 2, {half, {"ema", 0.9}, {"zero", 2}}), run(1, 2, {half, {"ema", 0.9}}));
}

TEST(Averages, AreWhatEvaluationsOfSavedWeightsSee) {
  const std::string dir = NewFolder();
  const auto keys = [&](Value::Map more) {
    more.emplace_back("optimizer", OfType("sgd"));
    return more;
  };
  FakeScript script;
  const auto trained =
      Start(ImageJob(1, 1, keys({{"ema", 0.9}, {"save", MapOf({{"dir", dir}})}})), script);
  for (int i = 0; i < 3; ++i) trained->TrainStep();
  trained->Save();
  const double averaged = trained->EvaluateTestData().loss;
  const auto digests = DigestsOf(*trained);
  const auto from_weights = [&](int pipe, int data, Value::Map more) {
    more.emplace_back("weights", dir);
    const auto engine = Start(ImageJob(pipe, data, keys(std::move(more))), script);
    const double loss = engine->EvaluateTestData().loss;
    EXPECT_EQ(DigestsOf(*engine), digests);
    engine->Recut(
        engine->Recut(pipe == 1 ? std::vector<int>{0, 5} : std::vector<int>{0, 1, 5}).cuts);
    EXPECT_EQ(engine->EvaluateTestData().loss, loss) << "layers moved";
    engine->TrainStep();
    EXPECT_NE(engine->EvaluateTestData().loss, loss) << "the averages begin anew";
    return loss;
  };
  EXPECT_NE(from_weights(1, 1, {}), averaged);
  EXPECT_EQ(from_weights(1, 1, {{"ema", 0.9}}), averaged);
  EXPECT_EQ(from_weights(2, 1, {{"ema", 0.5}}), averaged);
  EXPECT_NEAR(from_weights(2, 2, {{"ema", 0.9}, {"zero", 1}}), averaged, 1e-6);
}

TEST(Averages, OfATrainingThatGoesOnAreItsOwn) {
  FakeScript script;
  const auto started = [&](Value::Map more) {
    more.emplace_back("optimizer", OfType("sgd"));
    more.emplace_back("ema", 0.9);
    return Start(ImageJob(1, 1, std::move(more)), script);
  };
  const auto saves = [](const std::string& dir) { return MapOf({{"dir", dir}}); };
  const std::string weights = NewFolder(), dir = NewFolder();
  const auto before = started({{"save", saves(weights)}});
  before->TrainStep();
  before->Save();
  const Value::Map keys = {{"weights", weights}, {"resume", "latest"}, {"save", saves(dir)}};
  const auto first = started(keys);
  for (int i = 0; i < 2; ++i) first->TrainStep();
  first->Save();
  const double loss = first->EvaluateTestData().loss;
  first->Close();
  EXPECT_EQ(started(keys)->EvaluateTestData().loss, loss);
}

// Averages that are not loaded from the save, because it has none or learns nothing, are the
// values.
TEST(Averages, AreTheValuesWhereTheWeightsHaveNone) {
  const std::string dir = NewFolder();
  const auto job = [&](Value::Map more) {
    more.emplace_back("optimizer", OfType("sgd"));
    return ImageJob(1, 1, std::move(more));
  };
  FakeScript script;
  const auto trained = Start(
      job({{"ema", 0.9}, {"freeze", Value::List{4}}, {"save", MapOf({{"dir", dir}})}}), script);
  for (int i = 0; i < 3; ++i) trained->TrainStep();
  trained->Save();
  const double averaged = trained->EvaluateTestData().loss;
  const auto engine = Start(job({{"ema", 0.9}, {"weights", dir}}), script);
  EXPECT_EQ(engine->EvaluateTestData().loss, averaged);
}

TEST(Metrics, AreTheSameOnAnyGrid) {
  const auto run = [](int pipe, int data, int batch) {
    const Value names = Value::List{"accuracy", "f1", "confusion"};
    FakeScript script;
    const auto engine = Start(ImageJob(pipe, data,
                                       {{"eval", MapOf({{"batch", batch}, {"metrics", names}})},
                                        {"optimizer", OfType("sgd")}}),
                              script);
    return engine->EvaluateTestData();
  };
  const EvalResult one = run(1, 1, 45);
  EXPECT_EQ(one.metrics["accuracy"].as_double(), one.metric);
  int64_t samples = 0;
  for (const Value& row : one.metrics["confusion"].as_list()) {
    for (const Value& count : row.as_list()) samples += count.as_int();
  }
  EXPECT_EQ(samples, 45);
  for (const int batch : {4, 7}) {
    EXPECT_EQ(run(1, 1, batch).metrics, one.metrics);
    EXPECT_EQ(run(2, 1, batch).metrics, one.metrics);
    EXPECT_EQ(run(2, 2, batch).metrics, one.metrics);
  }
}

/// All parameters and gradients after a training's third step, by name.
std::vector<std::pair<at::Tensor, at::Tensor>> TensorsOf(const Job& job) {
  FakeScript script;
  const auto engine = Start(job, script);
  for (int i = 0; i < 3; ++i) engine->TrainStep();
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors;
  for (const TensorDigest& digest : engine->Parameters()) {
    Outputs parameter, gradient, none;
    engine->ReadTensor(digest.path, Engine::Kind::kParameter, parameter);
    engine->ReadTensor(digest.path, Engine::Kind::kGradient, gradient);
    engine->ReadTensor(digest.path + "x", Engine::Kind::kParameter, none);
    EXPECT_TRUE(none.list.empty());
    EXPECT_EQ(BitDigest(parameter.list.at(0).at(0)), digest.digest) << digest.path;
    tensors.emplace_back(parameter.list.at(0).at(0), gradient.list.at(0).at(0));
  }
  return tensors;
}

TEST(Tensors, AreReadByNameOnAnyGrid) {
  const Value::Map keys = {{"optimizer", OfType("sgd")}, {"clip", 0.5}};
  const auto expect_equal = [](const auto& some, const auto& others) {
    ASSERT_EQ(some.size(), others.size());
    for (size_t i = 0; i < some.size(); ++i) {
      EXPECT_TRUE(some[i].first.equal(others[i].first));
      EXPECT_TRUE(some[i].second.equal(others[i].second));
    }
  };
  const auto one = TensorsOf(ImageJob(1, 1, keys));
  expect_equal(TensorsOf(ImageJob(2, 1, keys)), one);
  for (const int zero : {1, 2}) {
    expect_equal(TensorsOf(ImageJob(2, 2, testing::With(keys, {{"zero", zero}}))),
                 TensorsOf(ImageJob(1, 2, keys)));
  }
  double squares = 0;
  for (const auto& [parameter, gradient] : one) squares += gradient.square().sum().item<double>();
  EXPECT_NEAR(std::sqrt(squares), 0.5, 1e-5) << "as the optimizer used it, clipped";
}

TEST(GradientNorms, AreThoseOfTheGradients) {
  const auto run = [](int pipe, int data, int zero) {
    FakeScript script;
    const auto engine = Start(
        ImageJob(pipe, data, {{"optimizer", OfType("sgd")}, {"grad_norms", true}, {"zero", zero}}),
        script);
    return engine->TrainStep();
  };
  const StepResult one = run(1, 1, 0);
  double squares = 0;
  for (const TensorDigest& gradient : one.gradients) squares += gradient.norm * gradient.norm;
  EXPECT_NEAR(std::sqrt(squares), one.grad_norm, 1e-6 * one.grad_norm);
  const StepResult two = run(2, 2, 2);
  ASSERT_EQ(two.gradients.size(), one.gradients.size());
  for (size_t i = 0; i < one.gradients.size(); ++i) {
    EXPECT_EQ(two.gradients[i].path, one.gradients[i].path);
  }
}

TEST(DataSeconds, AreTheReadersAndWithinTheStep) {
  FakeScript script;
  const auto engine = Start(ImageJob(2, 1, {{"optimizer", OfType("sgd")}}), script);
  const StepResult step = engine->TrainStep();
  EXPECT_GT(step.data_seconds, 0);
  EXPECT_LT(step.data_seconds, step.seconds);
}

/// Measured by the function's own clock, on the rank that calls it.
TEST(DataSeconds, HaveAllThatADataFunctionTook) {
  using Clock = std::chrono::steady_clock;
  std::chrono::duration<double> took(0);
  FakeScript script;
  script.data[1] = [&](int64_t i) {
    const Clock::time_point begin = Clock::now();
    while (Clock::now() - begin < std::chrono::milliseconds(2)) {
    }
    took += Clock::now() - begin;
    return testing::Rows(i);
  };
  const Job job = testing::MakeJob(testing::DropoutNet(), testing::Make("CrossEntropyLoss"),
                                   {{"data", MapOf({{"train", testing::Function(1)}})},
                                    {"input", MapOf({{"shape", Value::IntList({6})}})},
                                    {"parallel", Grid(1, 1)},
                                    {"steps", 2}});
  const auto engine = Start(job, script);
  took = took.zero();  // drops what planning has read
  const StepResult step = engine->TrainStep();
  EXPECT_GE(step.data_seconds, took.count());
  EXPECT_LT(step.data_seconds, step.seconds);
}

TEST(EveryEpoch, IsSavedAndEvaluated) {
  const std::string dir = NewFolder();
  const std::string end_of_pass = dir + "/step-00000004";  // after one pass over 100 samples
  const Value each = MapOf({{"every", "epoch"}});
  {
    FakeScript script;
    const Value save = MapOf({{"dir", dir}, {"every", "epoch"}, {"keep", 0}});
    const auto engine = Start(ImageJob(1, 1, {{"eval", each}, {"save", save}}), script);
    for (int step = 0; step < 5; ++step) engine->TrainStep();
    EXPECT_EQ(engine->Save().step, 5);
  }
  EXPECT_TRUE(std::filesystem::exists(end_of_pass));
  EXPECT_FALSE(std::filesystem::exists(dir + "/step-00000003"));
  FakeScript script;
  const auto engine = Start(ImageJob(2, 1, {{"eval", each}, {"resume", end_of_pass}}), script);
  EXPECT_TRUE(engine->start().owes_evaluation) << "the save began before it";
}

TEST(Best, IsKeptBesideTheLast) {
  const std::string dir = NewFolder();
  const auto keys = [&](bool resumes) {
    Value::Map all = {{"optimizer", OfType("sgd")},
                      {"eval", MapOf({{"every", 1}})},
                      {"stop", MapOf({{"patience", 0}, {"min_delta", 100.0}})},
                      {"save", MapOf({{"dir", dir}, {"best", "test.loss"}})}};
    if (resumes) all.emplace_back("resume", "latest");
    return all;
  };
  {
    FakeScript script;
    const auto engine = Start(ImageJob(1, 1, keys(false)), script);
    engine->TrainStep();
    const EvalResult first = engine->EvaluateTestData();
    EXPECT_TRUE(first.is_best);
    EXPECT_FALSE(first.ends_training());
    EXPECT_EQ(engine->SaveBest().path, dir + "/best/step-00000001");
    engine->TrainStep();
    engine->Save();
  }
  FakeScript script;
  const auto engine = Start(ImageJob(2, 1, keys(true)), script);
  EXPECT_EQ(engine->start().step, 2);
  EXPECT_TRUE(engine->start().owes_evaluation);
  EXPECT_TRUE(engine->EvaluateTestData().ends_training()) << "100 better than the first, it is not";
}

}  // namespace
}  // namespace strata
