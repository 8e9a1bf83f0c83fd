// What surrounds the steps of a training: its optimizer's state, averages, metrics, the best save.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "engine/base/testing.h"
#include "engine/runtime/testing_job.h"
#include "engine/spec/job/job_fields.h"

namespace strata {
namespace {

using testing::FakeScript;
using testing::MapOf;
using testing::Start;

Value Grid(int pipe, int data) { return MapOf({{"pipe", pipe}, {"data", data}}); }

/// Which all layers of the images' network can have.
Value OfType(const std::string& type) {
  Value::Map options = {{"1", type}, {"lr", 0.01}};
  if (type == "muon") {
    options.emplace_back("groups", Value::List{MapOf({{"1", "adamw"}, {"dims", "!=2"}})});
  }
  return MapOf(std::move(options));
}

/// For saves; empty.
std::string NewFolder() {
  std::string name = ::testing::TempDir() + "training-XXXXXX";
  STRATA_CHECK(::mkdtemp(name.data()) != nullptr) << name;
  return name;
}

/// 32 samples a step on any grid.
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
    Value::Map shared = keys;
    if (type.sees == OptionTable::Sees::kElements) shared.emplace_back("zero", 1);
    EXPECT_EQ(Trained(ImageJob(1, 2, shared), 3), Trained(ImageJob(1, 2, keys), 3)) << type.name;
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
  EXPECT_EQ(run(1, 2, {{"ema", 0.9}, {"zero", 1}}), run(1, 2, {{"ema", 0.9}}));
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
    EXPECT_FALSE(first.stop);
    EXPECT_EQ(engine->SaveBest().path, dir + "/best/step-00000001");
    engine->TrainStep();
    engine->Save();
  }
  FakeScript script;
  const auto engine = Start(ImageJob(2, 1, keys(true)), script);
  EXPECT_EQ(engine->start().step, 2);
  EXPECT_TRUE(engine->start().owes_evaluation);
  EXPECT_TRUE(engine->EvaluateTestData().stop) << "100 better than the first, it is not";
}

}  // namespace
}  // namespace strata
