// Saves and trainings that resume from them, with engines whose ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <future>
#include <tuple>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/files/disk_log.h"
#include "engine/checkpoint/save_folder.h"
#include "engine/checkpoint/save_part.h"
#include "engine/checkpoint/testing.h"
#include "engine/checkpoint/weights/convert_elements.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/saves/resumable.h"
#include "engine/runtime/saves/saved_job.h"
#include "engine/runtime/testing_job.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

const WithGradientBlocks kSmallBlocks(256);

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FakeScript;
using testing::Function;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Make;
using testing::MapOf;
using testing::Start;

/// Layers with dropout, statistics, and sizes that need padding.
std::vector<LayerSpec> Layers(int64_t width = 24, int64_t classes = 5) {
  return {Make("Conv2d", {1, 33, Value::IntList({2, 3})}),
          Make("Dropout", {0.3}),
          Make("BatchNorm2d", {33}),
          Make("Flatten"),
          Make("Linear", {33, width}),
          Make("GELU"),
          Make("Linear", {width, classes})};
}

FakeScript Script() { return testing::ScriptOf(testing::ImageRows); }

/// Keys of the test's job; those in `more` override the defaults.
Value::Map Keys(int pipe, const Value::Map& more = {}) {
  return testing::With({{"input", MapOf({{"shape", Value::IntList({1, 2, 3})}})},
                        {"parallel", MapOf({{"pipe", pipe}})},
                        {"data", MapOf({{"train", Function(1)}})},
                        {"optimizer", MapOf({{"1", "adamw"}, {"lr", 0.01}})},
                        {"lr_schedule", MapOf({{"1", "cosine"}, {"warmup", 2}})},
                        {"clip", 0.5},
                        {"steps", 8}},
                       more);
}

Job MakeJob(const Value::Map& keys, const std::vector<LayerSpec>& layers = Layers()) {
  return testing::MakeJob(layers, Make("CrossEntropyLoss"), keys);
}

/// The results that must not depend on the plan, or on how often a training was interrupted.
struct Bits {
  std::vector<double> losses, norms;
  std::vector<std::string> parameters;
  bool operator==(const Bits&) const = default;
};

Bits Train(Engine& engine, int64_t steps) {
  Bits bits;
  for (int64_t i = 0; i < steps; ++i) {
    const StepResult result = engine.TrainStep();
    bits.losses.push_back(result.loss);
    bits.norms.push_back(result.grad_norm);
  }
  for (const TensorDigest& digest : engine.Parameters()) bits.parameters.push_back(digest.digest);
  return bits;
}

double EvalLoss(Engine& engine) {
  MicroBatches batch;
  for (int64_t i = 0; i < 4; ++i) batch.list.push_back(testing::ImageRows(i));
  return engine.EvalBatch(batch, nullptr).loss;
}

class SaveTest : public ::testing::Test {
 protected:
  std::string dir() const { return folder_.Inside("runs"); }
  Value SaveKey(Value::Map more = {}) const {
    more.emplace_back("dir", dir());
    return MapOf(std::move(more));
  }

  std::unique_ptr<Engine> Begin(int pipe, const Value::Map& more = {},
                                const std::vector<LayerSpec>& layers = Layers()) {
    return Start(MakeJob(Keys(pipe, more), layers), script_);
  }

  /// The second half of a training of twice as many steps.
  Bits SecondHalf(int64_t steps, int pipe, const Value::Map& more = {},
                  const std::vector<LayerSpec>& layers = Layers()) {
    const auto engine = Begin(pipe, more, layers);
    Train(*engine, steps);
    return Train(*engine, steps);
  }

  /// Trains `steps` steps, saves, and returns the path of the save.
  std::string SaveAfter(int64_t steps, int pipe, Value::Map more = {}) {
    more.emplace_back("save", SaveKey());
    const auto engine = Begin(pipe, more);
    Train(*engine, steps);
    const SaveReport report = engine->Save();
    engine->Close();
    return report.path;
  }

  /// The error of a job with these keys.
  std::string ErrorOfStart(const Value::Map& more,
                           const std::vector<LayerSpec>& layers = Layers()) {
    return ErrorOf([&] { Begin(2, more, layers)->Close(); });
  }

  TestFolder folder_;
  FakeScript script_ = Script();
};

TEST_F(SaveTest, GoesOnBitForBitOnAnyPipeDegree) {
  const Bits expected = SecondHalf(4, 2);
  const std::string save = SaveAfter(4, 2);
  EXPECT_EQ(save, dir() + "/step-00000004");
  for (const int pipe : {1, 2, 3}) {
    const auto engine = Begin(pipe, {{"resume", dir()}});
    EXPECT_EQ(engine->start().step, 4);
    EXPECT_EQ(engine->start().from, save);
    EXPECT_THAT(engine->start().notes, ElementsAre());
    EXPECT_EQ(Train(*engine, 4), expected) << "pipe " << pipe;
  }
}

struct SavedOptimizer {
  const char* name;
  Value::Map keys;
};

void PrintTo(const SavedOptimizer& optimizer, std::ostream* out) { *out << optimizer.name; }

class SavedOptimizers : public SaveTest, public ::testing::WithParamInterface<SavedOptimizer> {};

TEST_P(SavedOptimizers, GoOnBitForBit) {
  const Value::Map keys = {{"optimizer", MapOf(GetParam().keys)}};
  const Bits expected = SecondHalf(3, 1, keys);
  SaveAfter(3, 3, keys);
  const auto engine = Begin(2, {{"optimizer", MapOf(GetParam().keys)}, {"resume", dir()}});
  EXPECT_EQ(Train(*engine, 3), expected);
}

INSTANTIATE_TEST_SUITE_P(
    All, SavedOptimizers,
    ::testing::Values(
        SavedOptimizer{"sgd", {{"1", "sgd"}, {"lr", 0.1}}},
        SavedOptimizer{"dampening",
                       {{"1", "sgd"}, {"lr", 0.1}, {"momentum", 0.9}, {"dampening", 0.2}}},
        SavedOptimizer{"nesterov",
                       {{"1", "sgd"}, {"lr", 0.1}, {"momentum", 0.9}, {"nesterov", true}}},
        SavedOptimizer{"amsgrad", {{"1", "adam"}, {"lr", 0.01}, {"amsgrad", true}}},
        SavedOptimizer{"groups",
                       {{"1", "adamw"},
                        {"lr", 0.01},
                        {"groups", Value::List{MapOf({{"parameters", "bias"}, {"lr", 0.1}})}}}}),
    [](const auto& info) { return std::string(info.param.name); });

/// Two layers with one weight, on different stages.
std::vector<LayerSpec> TiedLayers() {
  std::vector<LayerSpec> layers = {Make("Conv2d", {1, 33, Value::IntList({2, 3})}),
                                   Make("Flatten"),
                                   Make("Linear", {33, 8}),
                                   Make("Linear", {8, 8}),
                                   Make("GELU"),
                                   Make("Linear", {8, 8}),
                                   Make("Linear", {8, 5})};
  layers[3].tied_key = layers[5].tied_key = "shared";
  return layers;
}

TEST_F(SaveTest, TiedTensorsAreSavedOnceAndComeBackToAllUses) {
  const Bits expected = SecondHalf(3, 1, {}, TiedLayers());
  {
    const auto engine = Begin(3, {{"save", SaveKey()}}, TiedLayers());
    Train(*engine, 3);
    const Manifest manifest = ReadManifest(engine->Save().path);
    EXPECT_TRUE(manifest.Find("3.weight#exp_avg"));
    EXPECT_TRUE(manifest.Find("5.bias"));
    EXPECT_FALSE(manifest.Find("5.weight"));
    engine->Close();
  }
  for (const int pipe : {1, 2, 3}) {
    const auto engine = Begin(pipe, {{"resume", dir()}}, TiedLayers());
    EXPECT_EQ(Train(*engine, 3), expected) << "pipe " << pipe;
  }
}

/// Keys of a grid; all grids have the same samples per step.
Value::Map Grid(int pipe, int data, int zero) {
  return {{"parallel", MapOf({{"pipe", pipe}, {"data", data}})},
          {"batch", MapOf({{"micro_batches", 4 / data}, {"micro_batch_size", 8}})},
          {"zero", zero}};
}

TEST_F(SaveTest, ShardedMomentsComeBackOnAnyGrid) {
  const Bits expected = SecondHalf(3, 2, Grid(2, 2, 1));
  SaveAfter(3, 2, Grid(2, 2, 1));
  for (const auto& [pipe, data, zero] :
       {std::tuple(2, 2, 1), std::tuple(2, 2, 0), std::tuple(2, 2, 2), std::tuple(1, 1, 0),
        std::tuple(1, 4, 1), std::tuple(1, 4, 2)}) {
    Value::Map keys = Grid(pipe, data, zero);
    keys.emplace_back("resume", dir());
    const auto engine = Begin(pipe, keys);
    const Bits bits = Train(*engine, 3);
    if (pipe == 2) {
      EXPECT_EQ(bits, expected) << "zero " << zero;
      continue;
    }
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(bits.losses[i], expected.losses[i], 1e-6);
  }
}

/// The digests of a save's tensors by name.
std::vector<std::pair<std::string, std::string>> Digests(const std::string& path) {
  std::vector<std::pair<std::string, std::string>> digests;
  for (const SavedTensor& tensor : ReadManifest(path).tensors) {
    digests.emplace_back(tensor.name, tensor.slices.at(0).digest);
  }
  std::ranges::sort(digests);
  return digests;
}

TEST_F(SaveTest, KnowsNothingOfTheGrid) {
  const auto one = Digests(SaveAfter(2, 1));
  std::filesystem::remove_all(dir());
  const auto three = Digests(SaveAfter(2, 3));
  EXPECT_EQ(one, three);
  std::vector<std::string> names;
  for (const auto& [name, digest] : one) names.push_back(name);
  EXPECT_THAT(names,
              ::testing::IsSupersetOf({"0.weight", "0.weight#exp_avg", "0.weight#exp_avg_sq",
                                       "2.running_mean", "2.num_batches_tracked", "6.bias"}));
}

TEST_F(SaveTest, FrozenParametersAreSavedWithoutMoments) {
  const Manifest manifest = ReadManifest(SaveAfter(1, 2, {{"freeze", Value::List{0}}}));
  EXPECT_TRUE(manifest.Find("0.weight"));
  EXPECT_FALSE(manifest.Find("0.weight#exp_avg"));
  EXPECT_TRUE(manifest.Find("4.weight#exp_avg"));
}

TEST_F(SaveTest, SavesBesideTheTraining) {
  const auto engine = Begin(2, {{"save", SaveKey({{"every", 2}, {"keep", 2}})}});
  std::vector<int64_t> saved;
  for (int step = 0; step < 7; ++step) {
    const StepResult result = engine->TrainStep();
    if (!result.save) continue;
    EXPECT_EQ(result.save->error, "");
    EXPECT_GT(result.save->bytes, 10'000);
    EXPECT_EQ(result.save->path, dir() + "/" + SaveName(result.save->step));
    saved.push_back(result.save->step);
  }
  // A save is reported before the next one begins. The last may still be in progress.
  ASSERT_GE(saved.size(), 2u);
  EXPECT_EQ(saved[0], 2);
  EXPECT_EQ(saved[1], 4);
  EXPECT_EQ(engine->Save().step, 7);
  EXPECT_EQ(engine->Save().step, 7);  // it is saved already
  EXPECT_THAT(ListSaves(dir()), ElementsAre(SaveName(6), SaveName(7)));
  EXPECT_EQ(TroubleWithSave(dir()), "");
}

TEST_F(SaveTest, TheCopyIsThatOfItsStep) {
  const auto background = Begin(2, {{"save", SaveKey({{"every", 3}, {"keep", 0}})}});
  std::promise<void> trained;
  {
    const DiskLog log(dir(), [done = trained.get_future().share()] { done.wait(); });
    Train(*background, 5);  // runs while step 3 is being written
    EXPECT_THAT(ListSaves(dir()), IsEmpty());
    trained.set_value();
    background->Save();
    background->Close();
  }
  const auto digests = Digests(dir() + "/step-00000003");
  std::filesystem::remove_all(dir());
  EXPECT_EQ(Digests(SaveAfter(3, 2)), digests);
}

TEST_F(SaveTest, AFailedSaveEndsNothingButTheLastOne) {
  const auto engine = Begin(2, {{"save", SaveKey({{"every", 2}})}});
  std::filesystem::remove_all(dir());
  WriteText(dir(), "in the way");
  std::string error;
  for (int step = 0; step < 4; ++step) {
    const StepResult result = engine->TrainStep();
    if (result.save) error = result.save->error;
  }
  EXPECT_THAT(error, HasSubstr("cannot make the folder"));
  EXPECT_THAT(ErrorOf([&] { engine->Save(); }), HasSubstr("the save of step 4 failed: rank 0"));
}

/// A training whose evaluations never change.
Job StandingStill(const Value::Map& more) {
  const auto images = [](const char* split) {
    return MakeDataSource(
        "images", {},
        {{"shape", Value::IntList({1, 4, 4})}, {"classes", 5}, {"samples", 64}, {"split", split}},
        "net.lua:9");
  };
  return testing::MakeJob(
      {Make("Flatten"), Make("Linear", {16, 5})}, Make("CrossEntropyLoss"),
      testing::With({{"data", MapOf({{"train", images("train")}, {"test", images("test")}})},
                     {"optimizer", MapOf({{"1", "sgd"}, {"lr", 1e-30}})},
                     {"eval", MapOf({{"every", 5}})},
                     {"steps", 9}},
                    more));
}

TEST_F(SaveTest, ABestThatWasNotSavedIsNone) {
  const auto engine = Start(StandingStill({{"save", SaveKey({{"best", "test.loss"}})}}), script_);
  std::filesystem::remove_all(dir() + "/best");
  WriteText(dir() + "/best", "in the way");
  engine->TrainStep();
  EXPECT_TRUE(engine->EvaluateTestData().is_best);
  EXPECT_THAT(engine->SaveBest().error, HasSubstr("cannot make the folder"));
  EXPECT_TRUE(engine->EvaluateTestData().is_best);
  std::filesystem::remove(dir() + "/best");
  EXPECT_EQ(engine->SaveBest().error, "") << "the folder is made again";
  EXPECT_FALSE(engine->EvaluateTestData().is_best);
  engine->Close();
}

TEST_F(SaveTest, LatestIsTheBestSaveWhereThereIsNoOther) {
  const Value save = SaveKey({{"best", "test.loss"}});
  {
    const auto engine = Start(StandingStill({{"save", save}}), script_);
    engine->TrainStep();
    EXPECT_TRUE(engine->EvaluateTestData().is_best);
    EXPECT_TRUE(engine->SaveBest().is_best);
    engine->Close();
  }
  const auto engine = Start(StandingStill({{"save", save}, {"resume", "latest"}}), script_);
  EXPECT_EQ(engine->start().step, 1);
  EXPECT_EQ(engine->start().from, dir() + "/best/" + SaveName(1));
  EXPECT_THAT(engine->start().notes, ElementsAre("this is the best save: there is no other yet"));
  EXPECT_FALSE(engine->EvaluateTestData().is_best);
}

// The last save is made before the last evaluation.
TEST_F(SaveTest, ABestThatWasSavedBehindTheLastSaveIsKnown) {
  const Value save = SaveKey({{"best", "test.loss"}});
  {
    const auto engine = Start(StandingStill({{"save", save}}), script_);
    for (int step = 0; step < 2; ++step) {
      engine->TrainStep();
      engine->Save();
    }
    EXPECT_TRUE(engine->EvaluateTestData().is_best);
    engine->SaveBest();
    engine->Close();
  }
  const auto is_best = [&](const std::string& resume) {
    const auto engine = Start(StandingStill({{"save", save}, {"resume", resume}}), script_);
    engine->TrainStep();
    const EvalResult result = engine->EvaluateTestData();
    engine->Close();
    return result.is_best;
  };
  EXPECT_FALSE(is_best("latest"));
  EXPECT_FALSE(is_best(dir() + "/" + SaveName(1))) << "its step comes again, no better";
  EXPECT_THAT(ListSaves(dir() + "/best"), ElementsAre(SaveName(2)));
  const Value other = SaveKey({{"best", "test.accuracy"}});
  const auto engine = Start(StandingStill({{"save", other}, {"resume", dir()}}), script_);
  EXPECT_THAT(engine->start().notes,
              Contains("save.best looks at test.accuracy, more is better, when it was saved at "
                       "test.loss, less is better: what it has seen does not count"));
}

// All evaluations are equal here, so none is better than that of the best save.
TEST_F(SaveTest, NoEvaluationBeforeTheBestSaveTakesItsPlaceForLess) {
  {
    const Value save = SaveKey({{"best", "test.loss"}, {"keep", 0}});
    const auto engine = Start(StandingStill({{"save", save}}), script_);
    for (int step = 0; step < 4; ++step) {
      engine->Save();
      engine->TrainStep();
    }
    EXPECT_TRUE(engine->EvaluateTestData().is_best);
    engine->SaveBest();
    engine->Close();
  }
  const auto is_best = [&](int64_t step, const char* monitor) {
    const Value save = SaveKey({{"best", monitor}, {"keep", 0}});
    const std::string resume = dir() + "/" + SaveName(step);
    const auto engine = Start(StandingStill({{"save", save}, {"resume", resume}}), script_);
    EXPECT_EQ(engine->start().step, step);
    const bool verdict = engine->EvaluateTestData().is_best;  // of the same step
    engine->Close();
    return verdict;
  };
  for (const int64_t step : {0, 1, 3}) EXPECT_FALSE(is_best(step, "test.loss")) << step;
  EXPECT_TRUE(is_best(1, "test.accuracy")) << "another number begins anew";
  EXPECT_THAT(ListSaves(dir() + "/best"), ElementsAre(SaveName(4)));
}

TEST_F(SaveTest, WhatGoesOnWithoutSavingRemovesNoSave) {
  {
    const auto engine = Begin(2, {{"save", SaveKey({{"keep", 0}})}});
    for (int step = 0; step < 4; ++step) {
      Train(*engine, 1);
      engine->Save();
    }
    engine->Close();
  }
  const Value::Map keys = {{"save", SaveKey({{"keep", 2}})}, {"resume", "latest"}};
  Begin(2, keys)->Close();
  EXPECT_EQ(ListSaves(dir()).size(), 4u);
  const auto engine = Begin(2, keys);
  Train(*engine, 1);
  engine->Save();
  EXPECT_THAT(ListSaves(dir()), ElementsAre(SaveName(4), SaveName(5)));
}

TEST_F(SaveTest, ACopyOfASaveIsGoneOnFrom) {
  const std::string save = SaveAfter(2, 2), good = dir() + "/good";
  std::filesystem::copy(save, good);
  for (const char* key : {"resume", "weights"}) {
    const auto engine = Begin(1, {{key, good}});
    EXPECT_EQ(engine->start().from, good);
    EXPECT_EQ(engine->start().step, key == std::string("resume") ? 2 : 0);
  }
  EXPECT_EQ(ErrorOfStart({{"save", SaveKey()}, {"resume", good}}), "no error");
}

TEST_F(SaveTest, AFolderWithSavesIsNotTakenBySurprise) {
  SaveAfter(2, 2);
  EXPECT_THAT(ErrorOfStart({{"save", SaveKey()}}),
              AllOf(HasSubstr("there are saves in " + dir() + " already, the last of step 2"),
                    HasSubstr("--resume")));
}

TEST_F(SaveTest, ASaveFromElsewhereDoesNotTakeOverAFolder) {
  SaveAfter(2, 2);
  const std::string elsewhere = dir() + "_elsewhere";
  std::filesystem::remove_all(elsewhere);
  std::filesystem::copy(dir(), elsewhere, std::filesystem::copy_options::recursive);
  EXPECT_THAT(ErrorOfStart({{"save", SaveKey()}, {"resume", elsewhere}}),
              HasSubstr("there are saves in " + dir() + " already"));
  EXPECT_EQ(ErrorOfStart({{"save", SaveKey()}, {"resume", dir() + "/"}}), "no error");
}

TEST_F(SaveTest, TwoTrainingsDoNotShareAFolder) {
  const auto first = Begin(1, {{"save", SaveKey()}});
  EXPECT_THAT(ErrorOfStart({{"save", SaveKey()}}), HasSubstr("another training saves to"));
}

TEST_F(SaveTest, LatestBeginsWhereNothingIsSavedYet) {
  const Value::Map keys = {{"save", SaveKey()}, {"resume", "latest"}};
  for (const int64_t done : {0, 2}) {
    const auto engine = Begin(2, keys);
    EXPECT_EQ(engine->start().step, done);
    EXPECT_EQ(engine->start().notes.size(), done == 0 ? 1u : 0u);
    Train(*engine, 2);
    engine->Save();
    engine->Close();
  }
  EXPECT_THAT(ListSaves(dir()), ElementsAre(SaveName(2), SaveName(4)));
}

TEST_F(SaveTest, SavesWithoutLatestAreNotPassedOver) {
  SaveAfter(2, 2);
  const Value::Map keys = {{"save", SaveKey()}, {"resume", "latest"}};
  const auto step_of_start = [&] {
    const auto engine = Begin(2, keys);
    Train(*engine, 2);
    engine->Save();
    engine->Close();
    return engine->start().step;
  };
  // The first save's writer may have died just before it wrote `latest`.
  std::filesystem::remove(dir() + "/latest");
  EXPECT_EQ(step_of_start(), 2);
  std::filesystem::remove(dir() + "/latest");
  EXPECT_THAT(ErrorOfStart(keys),
              AllOf(HasSubstr("there are saves in " + dir() + ", but no file \"latest\""),
                    HasSubstr("the newest whole save is of step 4; to go on from it: --resume=" +
                              dir() + "/" + SaveName(4))));
  EXPECT_THAT(ListSaves(dir()), ElementsAre(SaveName(2), SaveName(4)));
}

TEST_F(SaveTest, WhatDoesNotFitIsRefusedByName) {
  SaveAfter(2, 2);
  const Value resume = dir();
  EXPECT_THAT(ErrorOfStart({{"resume", resume}}, Layers(25)),
              HasSubstr("tensor \"4.weight\" is float32 (24, 33), this job's is float32 (25, 33)"));
  std::vector<LayerSpec> longer = Layers();
  longer.push_back(Make("Linear", {5, 5}));
  EXPECT_THAT(ErrorOfStart({{"resume", resume}}, longer), HasSubstr("has no tensor \"7.weight\""));
  std::vector<LayerSpec> shorter = Layers(24, 24);
  shorter.pop_back();
  EXPECT_THAT(ErrorOfStart({{"resume", resume}}, shorter),
              HasSubstr("tensor \"6.weight\" (float32 (5, 24)) has no place in this job"));
  const Value amsgrad = MapOf({{"1", "adamw"}, {"lr", 0.01}, {"amsgrad", true}});
  EXPECT_THAT(ErrorOfStart({{"resume", resume}, {"optimizer", amsgrad}}),
              AllOf(HasSubstr(" has no tensor \""), HasSubstr("#max_exp_avg_sq\" ("),
                    HasSubstr("): the optimizer's options are others than in the save")));
  // Any stage may report its error first.
  EXPECT_THAT(ErrorOfStart({{"resume", resume}, {"ema", 0.5}}),
              AllOf(HasSubstr(" has no tensor \""), HasSubstr("#ema\" ("),
                    HasSubstr("): ema is another than in the save")));
  EXPECT_THAT(ErrorOfStart({{"resume", resume}, {"seed", 7}}), HasSubstr("go on with --seed=1234"));
  EXPECT_THAT(ErrorOfStart({{"resume", resume}, {"optimizer", MapOf({{"1", "sgd"}})}}),
              HasSubstr("its optimizer is adamw, this job's is sgd"));
  EXPECT_THAT(ErrorOfStart({{"resume", resume},
                            {"batch", MapOf({{"micro_batches", 2}, {"micro_batch_size", 8}})}}),
              HasSubstr("its steps have 4 micro-batches of 8"));
  EXPECT_THAT(ErrorOfStart({{"resume", folder_.Inside("none")}}), HasSubstr("No such file"));
}

/// All elements of a tensor of a save, converted if a dtype is given.
std::vector<char> Elements(const std::string& save, const std::string& name,
                           std::optional<DType> type = {}) {
  const auto opened = Checkpoint::Open(save);
  const SavedTensor& tensor = *opened->manifest().Find(name);
  std::vector<char> bytes(static_cast<size_t>(tensor.spec.bytes()));
  opened->Read(tensor, Slice::Whole(tensor.spec.shape), bytes.data());
  if (!type) return bytes;
  std::vector<char> converted(static_cast<size_t>(tensor.spec.elements() * DTypeSize(*type)));
  ConvertElements(tensor.spec.dtype, bytes.data(), *type, converted.data(), tensor.spec.elements());
  return converted;
}

TEST_F(SaveTest, AnotherTypeOfParametersGoesOn) {
  const Value half = MapOf({{"1", "bf16"}, {"params", "bf16"}}), masters = "bf16",
              whole = "float32";
  for (const auto& [before, now] : {std::pair(masters, half), {whole, half}, {half, whole}}) {
    std::filesystem::remove_all(dir());
    const Value::Map averaged = {{"ema", 0.9}};
    const std::string save = SaveAfter(3, 2, testing::With(averaged, {{"precision", before}}));
    const DType type = now == half ? DType::kBFloat16 : DType::kFloat32;
    std::vector<Bits> courses;
    for (const auto& [pipe, data, zero] : {std::tuple(2, 2, 2), {1, 1, 0}, {3, 1, 0}}) {
      Value::Map keys = testing::With(Grid(pipe, data, zero), averaged);
      const std::string other = folder_.Inside(Str("other", pipe, now.ToLua(), before.ToLua()));
      keys = testing::With(keys, {{"precision", now}, {"resume", save}, {"save", other}});
      const auto engine = Begin(pipe, keys);
      EXPECT_THAT(engine->start().notes,
                  ElementsAre(now == half ? "18 tensors of the save become bfloat16, from float32: "
                                            "the values are rounded"
                                          : "18 tensors of the save become float32, from bfloat16: "
                                            "no value changes"));
      const std::string again = engine->Save().path;
      for (const SavedTensor& tensor : ReadManifest(again).tensors) {
        const bool is_converted = tensor.kind != TensorKind::kBuffer;
        // Norms and averages are always float32.
        const bool is_wide = tensor.name.ends_with("#ema") || tensor.name.starts_with("2.");
        if (is_converted) {
          EXPECT_EQ(tensor.spec.dtype, is_wide ? DType::kFloat32 : type) << tensor.name;
        }
        EXPECT_EQ(Elements(again, tensor.name), is_converted
                                                    ? Elements(save, tensor.name, tensor.spec.dtype)
                                                    : Elements(save, tensor.name))
            << tensor.name;
      }
      courses.push_back(Train(*engine, 2));
      engine->Close();
    }
    EXPECT_EQ(courses[1], courses[2]);
  }
}

TEST_F(SaveTest, SaysWhereLargeValuesOverflow) {
  const auto with_type = [](const char* type) {
    std::vector<LayerSpec> layers = Layers();
    layers.back() = Make("Linear", {24, 5}, {{"dtype", type}});
    return layers;
  };
  const Value sgd = MapOf({{"1", "sgd"}, {"lr", 0.01}});
  const auto engine = Start(
      MakeJob(Keys(2, {{"optimizer", sgd}, {"save", SaveKey()}}), with_type("bfloat16")), script_);
  Train(*engine, 1);
  const std::string save = engine->Save().path;
  engine->Close();
  for (const auto& [type, change] :
       {std::pair("float16", "the values are rounded, and those above 65,504 overflow"),
        {"float32", "no value changes"}}) {
    const auto resumed =
        Start(MakeJob(Keys(2, {{"optimizer", sgd}, {"resume", save}}), with_type(type)), script_);
    EXPECT_THAT(resumed->start().notes,
                Contains(Str("2 tensors of the save become ", type, ", from bfloat16: ", change)));
    resumed->Close();
  }
}

/// Keys for Adam without warmup: an element's first step is as long as the learning rate.
Value::Map Thawing(const Value& freeze, const Value::Map& more = {}) {
  return testing::With({{"freeze", freeze}, {"lr_schedule", "constant"}, {"clip", Value()}}, more);
}

float LargestChange(const std::string& from, const std::string& to, const std::string& name) {
  const std::vector<char> a = Elements(from, name), b = Elements(to, name);
  float largest = 0;
  for (size_t i = 0; i < a.size(); i += sizeof(float)) {
    float x = 0, y = 0;
    std::memcpy(&x, a.data() + i, sizeof x);
    std::memcpy(&y, b.data() + i, sizeof y);
    largest = std::max(largest, std::abs(x - y));
  }
  return largest;
}

TEST_F(SaveTest, ParametersThatLearnLaterBeginWithAStepOfTheirOwn) {
  const Value frozen = Value::List{0, "parameters:4.weight"}, none;
  const std::string save = SaveAfter(3, 2, Thawing(frozen));
  const std::string told =
      "these parameters were frozen in the save and learn from now on; their moments begin at zero "
      "and their steps count from 1: 0.weight, 0.bias, 4.weight";
  const BeganSteps began = {{"0.weight", 3}, {"0.bias", 3}, {"4.weight", 3}};
  std::vector<Bits> courses;
  for (const int pipe : {1, 2, 3}) {
    const std::string folder = folder_.Inside(Str("thawed", pipe));
    const Value::Map thawed = Thawing(none, {{"resume", save}, {"save", folder}});
    const auto engine = Begin(pipe, thawed);
    EXPECT_THAT(engine->start().notes, ElementsAre(told));
    Bits bits = Train(*engine, 1);
    const std::string first = engine->Save().path;
    EXPECT_EQ(ReadManifest(first).training.began, began);
    for (const char* name : {"0.weight", "4.weight"}) {
      EXPECT_NEAR(LargestChange(save, first, name), 0.01, 0.0005) << name;
    }
    if (pipe == 3) engine->Recut({0, 2, 3, 7});
    const Bits rest = Train(*engine, 2);
    engine->Close();
    bits.losses.insert(bits.losses.end(), rest.losses.begin(), rest.losses.end());
    bits.parameters = rest.parameters;
    courses.push_back(bits);
    // The step counts of parameters are saved, and a resumed training continues with them.
    const auto again = Begin(4 - pipe, Thawing(none, {{"resume", first}}));
    EXPECT_THAT(again->start().notes, ElementsAre());
    EXPECT_EQ(Train(*again, 2).parameters, rest.parameters);
  }
  EXPECT_EQ(courses[0], courses[1]);
  EXPECT_EQ(courses[0], courses[2]);
}

TEST_F(SaveTest, ParametersThatLearnLaterDoSoOnReplicasWithShares) {
  const Value frozen = Value::List{0, 6}, none;
  const std::string save = SaveAfter(3, 2, Thawing(frozen, {{"ema", 0.9}}));
  std::vector<Bits> courses;
  for (const int zero : {0, 1, 2}) {
    const Value::Map more = {
        {"ema", 0.9}, {"resume", save}, {"save", folder_.Inside(Str("thawed", zero))}};
    const auto engine = Begin(2, testing::With(Grid(2, 2, zero), Thawing(none, more)));
    const std::string first = engine->Save().path;
    for (const char* name : {"0.weight", "6.bias"}) {
      EXPECT_EQ(Elements(first, Str(name, "#ema")), Elements(save, name)) << name;
    }
    courses.push_back(Train(*engine, 3));
    engine->Close();
  }
  EXPECT_EQ(courses[0], courses[1]);
}

TEST_F(SaveTest, ParametersThatLearnNoLongerBeginAnewLater) {
  const Value frozen = Value::List{0}, none;
  const std::string save = SaveAfter(2, 2, Thawing(none));
  const std::string stopped = folder_.Inside("stopped"), again = folder_.Inside("again");
  {
    const auto engine = Begin(3, Thawing(frozen, {{"resume", save}, {"save", stopped}}));
    EXPECT_THAT(engine->start().notes,
                ElementsAre("these parameters learnt in the save and are frozen from now on; their "
                            "moments are dropped: 0.weight, 0.bias"));
    Train(*engine, 2);
    const std::string path = engine->Save().path;
    EXPECT_FALSE(ReadManifest(path).Find("0.weight#exp_avg"));
    EXPECT_TRUE(ReadManifest(path).Find("4.weight#exp_avg"));
    EXPECT_EQ(Elements(path, "0.weight"), Elements(save, "0.weight"));
    engine->Close();
  }
  for (const std::string& from : {stopped, again}) {
    const Value::Map keys = {{"resume", from}};
    const auto engine =
        Start(MakeJob(Keys(
                  1, Thawing(none, testing::With(keys, from == stopped ? Value::Map{{"save", again}}
                                                                       : Value::Map{})))),
              script_);
    if (from == again) continue;
    Train(*engine, 1);
    const Manifest manifest = ReadManifest(engine->Save().path);
    EXPECT_EQ(manifest.training.began, (BeganSteps{{"0.weight", 4}, {"0.bias", 4}}));
    engine->Close();
  }
  // The step count of a parameter that is frozen again is dropped.
  const auto engine = Start(
      MakeJob(Keys(2, Thawing(frozen, {{"resume", again}, {"save", folder_.Inside("last")}}))),
      script_);
  EXPECT_EQ(ReadManifest(engine->Save().path).training.began, BeganSteps());
}

TEST_F(SaveTest, TiesLearnLaterOnAllStages) {
  const Value frozen = Value::List{3, 5}, none;
  {
    const auto engine = Begin(2, Thawing(frozen, {{"save", SaveKey()}}), TiedLayers());
    Train(*engine, 3);
    engine->Save();
    engine->Close();
  }
  std::vector<Bits> courses;
  for (const int pipe : {1, 2, 3}) {
    const auto engine = Start(
        MakeJob(Keys(pipe, Thawing(none, {{"resume", dir()}, {"tie_check", 1}})), TiedLayers()),
        script_);
    EXPECT_THAT(engine->start().notes,
                ElementsAre(HasSubstr("steps count from 1: 3.weight, 3.bias, 5.bias")));
    courses.push_back(Train(*engine, 3));
  }
  EXPECT_EQ(courses[0], courses[1]);
  EXPECT_EQ(courses[0], courses[2]);
}

TEST_F(SaveTest, OnlyWhatATrainingNeedsIsAskedOfASaveWhereNothingTrains) {
  SaveAfter(2, 2);
  Job job = MakeJob(Keys(1, {{"resume", dir()},
                             {"seed", 7},
                             {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.1}, {"momentum", 0.9}})},
                             {"batch", MapOf({{"micro_batches", 2}, {"micro_batch_size", 3}})}}));
  EXPECT_THAT(ErrorOf([&] { Start(job, script_)->Close(); }), HasSubstr("--seed=1234"));
  job.trains = false;
  const auto trained = Begin(1, {{"resume", dir()}});
  const auto engine = Start(job, script_);
  for (size_t i = 0; i < engine->Parameters().size(); ++i) {
    EXPECT_EQ(engine->Parameters()[i].digest, trained->Parameters()[i].digest);
  }
}

TEST_F(SaveTest, WhatDoesNotFitIsRefusedBeforeRanksStart) {
  const std::string save = SaveAfter(2, 2);
  const auto error = [&](const Value::Map& more, const std::vector<LayerSpec>& layers = Layers()) {
    const Job job = MakeJob(Keys(2, testing::With({{"resume", save}}, more)), layers);
    return ErrorOf([&] { CheckResume(job, PlanJob(job, {}, &script_)); });
  };
  EXPECT_EQ(error({}), "no error");
  EXPECT_EQ(error({{"freeze", Value::List{0}}}), "no error");
  EXPECT_EQ(error({{"precision", MapOf({{"1", "bf16"}, {"params", "bf16"}})}}), "no error");
  EXPECT_THAT(error({{"seed", 7}}), HasSubstr("go on with --seed=1234"));
  EXPECT_THAT(error({{"ema", 0.5}}), HasSubstr("ema is another than in the save"));
  EXPECT_THAT(error({}, Layers(25)), HasSubstr("is float32 (24, 33), this job's is float32 (25"));
  const Value amsgrad = MapOf({{"1", "adamw"}, {"amsgrad", true}});
  EXPECT_THAT(error({{"optimizer", amsgrad}}), HasSubstr("the optimizer's options are others"));
  std::vector<LayerSpec> shorter = Layers(24, 24);
  shorter.pop_back();
  EXPECT_THAT(error({}, shorter), HasSubstr("has no place in this job"));
  EXPECT_EQ(error({{"resume", folder_.Inside("none")}}), "no error") << "the ranks tell";
}

TEST_F(SaveTest, DataThatHasGrownIsTold) {
  const auto start = [&](int samples, const Value& resume) {
    return Start(
        testing::ImageJob(samples, {{"save", MapOf({{"dir", dir()}})}, {"resume", resume}}),
        script_);
  };
  start(64, Value())->Save();
  EXPECT_THAT(start(64, "latest")->start().notes, ElementsAre());
  EXPECT_THAT(start(96, "latest")->start().notes,
              Contains("data.train has 96 samples, when it was saved 64: epochs begin at other "
                       "steps, in another order"));
}

TEST_F(SaveTest, ClassesKeepTheirNumbers) {
  using Names = std::vector<std::string>;
  const auto start = [&](const Names& classes, const std::string& encoding, const char* key,
                         bool learns = true) {
    Value::Map keys = {{key, dir()}};
    if (key == std::string("save")) keys = {{"save", SaveKey()}};
    if (key == std::string("save_2")) keys = {{"save", folder_.Inside("second")}};
    if (key == std::string("resume_2")) keys = {{"resume", folder_.Inside("second")}};
    Job job = testing::ImageJob(64, keys);
    job.train_data.class_names = classes;
    job.train_data.encoding = encoding;
    for (LayerSpec& layer : job.layers) layer.frozen = !learns;
    return Start(job, script_);
  };
  const Names own = {"ape", "cat", "dog", "owl", "p\xefg"};  // a byte of Latin-1
  const Names other = {"ape", "bat", "cat", "dog", "owl"}, renamed = {"ape", "cat", "hound", "owl"};
  start(own, "1", "save")->Save();
  for (const char* key : {"resume", "weights"}) {
    const auto notes = [&](const Names& classes, const std::string& encoding) {
      return start(classes, encoding, key)->start().notes;
    };
    EXPECT_THAT(notes(own, "1"), ElementsAre());
    EXPECT_THAT(notes({}, ""), ElementsAre()) << "the data has none";
    EXPECT_THAT(notes(renamed, "2"),
                ElementsAre("data.train has the classes ape, cat, hound, owl, when it was saved "
                            "ape, cat, dog, owl, p\ufffdg",
                            HasSubstr("data.train makes other numbers of its cells than when")));
  }
  EXPECT_THAT(
      ErrorOf([&] { start(other, "1", "resume"); }),
      HasSubstr("class 1 is \"cat\" there, and in data.train \"bat\": outputs would have "
                "the names of others. The save has ape, cat, dog, owl, p\ufffdg; data.train has "
                "ape, bat, cat, dog, owl"));
  EXPECT_THAT(start(other, "1", "weights")->start().notes, ElementsAre(HasSubstr("the classes")));
  EXPECT_THAT(ErrorOf([&] { start(other, "1", "weights", /*learns=*/false); }),
              HasSubstr("class 1 is \"cat\" there, and in data.train \"bat\""))
      << "predict and eval learn no other classes";
  Job averages = testing::ImageJob(64, {{"weights", dir()}, {"ema", 0.5}});
  averages.train_data.class_names = other;
  EXPECT_THAT(Start(averages, script_)->start().notes, Contains(HasSubstr("the classes")));
  averages.trains = false;
  EXPECT_THAT(ErrorOf([&] { Start(averages, script_); }),
              HasSubstr("class 1 is \"cat\" there, and in data.train \"bat\""))
      << "nor where they freeze no layer";
  const Names alike = {"ape", "\xef", "\xff", "owl", "pig"};
  start(alike, "1", "save_2")->Save();
  EXPECT_THAT(start(alike, "1", "resume_2")->start().notes, ElementsAre()) << "JSON has one name";
}

/// Writes a save like those of versions in which averages had the type of their parameters.
void WriteWithRoundedAverages(const std::string& from, const std::string& to) {
  const auto save = Checkpoint::Open(from);
  std::vector<std::vector<char>> memory;
  std::vector<OwnedSlice> slices;
  for (const SavedTensor& tensor : save->manifest().tensors) {
    TensorSpec spec = tensor.spec;
    std::vector<char> bytes(static_cast<size_t>(spec.bytes()));
    save->Read(tensor, Slice::Whole(spec.shape), bytes.data());
    if (tensor.name.ends_with("#ema")) {
      const std::vector<char> whole = bytes;
      spec.dtype = save->manifest().Find(tensor.name.substr(0, tensor.name.find('#')))->spec.dtype;
      ConvertElements(tensor.spec.dtype, whole.data(), spec.dtype, bytes.data(), spec.elements());
    }
    memory.push_back(std::move(bytes));
    slices.push_back(
        {tensor.name, tensor.kind, spec, Slice::Whole(spec.shape), memory.back().data()});
  }
  SaveFolder folder(to, /*keep=*/0);
  Manifest manifest;
  manifest.training = save->manifest().training;
  const std::string temporary = folder.Begin(manifest.training.step);
  const std::atomic<bool> cancelled = false;
  AddPart(manifest, WritePart(temporary, 0, slices, cancelled));
  folder.Commit(temporary, std::move(manifest));
}

TEST_F(SaveTest, AveragesOfBf16AreSavedInFloat32AndTakenFromSixteenBits) {
  const Value::Map half = {{"precision", MapOf({{"1", "bf16"}, {"params", "bf16"}})}};
  const Value::Map averaged = testing::With(half, {{"ema", 0.9}});
  const std::string save = SaveAfter(4, 2, averaged), older = folder_.Inside("older");
  const Manifest manifest = ReadManifest(save);
  EXPECT_EQ(manifest.Find("0.weight")->spec.dtype, DType::kBFloat16);
  EXPECT_EQ(manifest.Find("0.weight#exp_avg")->spec.dtype, DType::kBFloat16);
  EXPECT_EQ(manifest.Find("0.weight#ema")->spec.dtype, DType::kFloat32);
  WriteWithRoundedAverages(save, older);
  const auto loss = [&](const Value::Map& keys, const char* key, const std::string& from) {
    const auto engine = Begin(2, testing::With(keys, {{key, from}}));
    return EvalLoss(*engine);
  };
  const double expected = loss(averaged, "resume", dir());
  EXPECT_NE(loss(half, "weights", dir()), expected) << "the values";
  EXPECT_EQ(loss(averaged, "resume", older), expected);
  EXPECT_EQ(loss(averaged, "weights", dir()), expected);
  EXPECT_EQ(loss(averaged, "weights", older), expected);
}

TEST_F(SaveTest, AChangedJobIsTold) {
  SaveAfter(2, 2);
  const auto engine = Begin(1, {{"resume", dir()}, {"clip", 0.25}});
  EXPECT_THAT(engine->start().notes,
              ElementsAre("the job has changed since the save: clip: 0.5 against 0.25"));
}

TEST(DifferencesOf, NamesThreeAndCountsTheRest) {
  const auto function = [](const char* where, const char* digest) {
    return MapOf({{"function", where}, {"digest", digest}});
  };
  const Value saved = MapOf({{"a", Value::IntList({1, 2})}, {"b", 3}, {"f", function("x:1", "d")}});
  Value now = saved;
  now.Set("f", function("x:9", "d"));
  EXPECT_EQ(DifferencesOf(saved, now), "") << "the function has moved";
  now.Set("a", Value::IntList({1, 5})).Set("f", function("x:9", "e"));
  EXPECT_EQ(DifferencesOf(saved, now),
            "a.1: 2 against 5; f.function: \"x:1\" against \"x:9\"; f.digest: \"d\" against \"e\"");
  now.Set("b", Value()).Set("c", std::string(100, 'c'));
  EXPECT_EQ(DifferencesOf(saved, now),
            "a.1: 2 against 5; b: 3 against nil; f.function: \"x:1\" against \"x:9\"; and 2 more");
  EXPECT_EQ(DifferencesOf(MapOf({}), MapOf({{"c", std::string(100, 'c')}})),
            "c: nil against \"" + std::string(59, 'c') + "...");
}

TEST_F(SaveTest, AnotherJobThanTheSavesIsToldWhereNothingIsTrained) {
  SaveAfter(2, 2);
  const auto notes = [&](const Value::Map& more, const std::vector<LayerSpec>& layers,
                         bool trains = false) {
    Job job = MakeJob(Keys(2, testing::With({{"weights", dir()}}, more)), layers);
    job.trains = trains;
    const auto engine = Start(job, script_);
    engine->Close();
    return engine->start().notes;
  };
  std::vector<LayerSpec> others = Layers();
  others[1] = Make("Dropout", {0.5});
  others[5] = Make("ReLU");
  EXPECT_THAT(notes({}, others, /*trains=*/true), ElementsAre());
  EXPECT_THAT(notes({}, others),
              ElementsAre(AllOf(HasSubstr("the save was trained by another job: layers.1.args.p: "
                                          "0.3 against 0.5; layers.5.type: "),
                                HasSubstr("\"GELU\" against \"ReLU\""))));
  EXPECT_THAT(notes({{"ema", 0.5}}, Layers()),
              ElementsAre("the save was trained by another job: ema: 0 against 0.5"));
  EXPECT_THAT(notes({{"freeze", "type:."}, {"clip", 2}, {"seed", 5}}, Layers()), ElementsAre())
      << "the outputs are the same";
  const Value saved = Value::FromJson(MakeJob(Keys(2)).ToValue().ToJson());
  Value now = saved;
  now.SetPath("precision.name", "bf16");
  EXPECT_EQ(DifferencesOfOutputs(saved, now), "precision.name: \"float32\" against \"bf16\"");
  EXPECT_EQ(DifferencesOfOutputs(MapOf({}), now), "") << "an older save tells nothing";
}

TEST_F(SaveTest, InitialValuesAreToldAndNotEvaluated) {
  const std::string save = SaveAfter(2, 2);
  Job job = MakeJob(Keys(2, {{"weights", MapOf({{"from", save}, {"except", 6}})}}));
  EXPECT_THAT(Start(job, script_)->start().notes,
              ElementsAre("left out by weights.except, so with their initial values: 6.weight, "
                          "6.bias"));
  const auto error = [&] { return ErrorOf([&] { Start(job, script_)->Close(); }); };
  job.trains = false;
  for (const bool strict : {true, false}) {
    job.weights.strict = strict;
    EXPECT_THAT(error(), AllOf(HasSubstr("with initial values, and it does not train:"),
                               HasSubstr("\nleft out by weights.except: 6.weight, 6.bias\n")));
  }
  std::vector<LayerSpec> longer = Layers();
  longer.push_back(Make("Linear", {5, 5}));
  job = MakeJob(Keys(2, {{"weights", save}}), longer);
  EXPECT_THAT(Start(job, script_)->start().notes, ElementsAre(HasSubstr("7.weight, 7.bias")));
  job.trains = false;
  EXPECT_THAT(error(), AllOf(HasSubstr("with initial values, and it does not train:\nnot in " +
                                       save + ": 7.weight, 7.bias"),
                             HasSubstr("--weights.strict=false")));
  job.weights.strict = false;
  EXPECT_THAT(Start(job, script_)->start().notes, Contains(HasSubstr("7.weight, 7.bias")));
}

TEST_F(SaveTest, AMergedSaveKeepsItsAverages) {
  const std::string save = SaveAfter(3, 2, {{"ema", 0.5}});
  const std::string file = folder_.Inside("merged.safetensors");
  Merge(*Checkpoint::Open(save), file, [](const SavedTensor&) { return true; });
  const auto loss = [&](const std::string& from, const Value& ema) {
    const auto engine = Begin(2, {{"weights", from}, {"ema", ema}});
    EXPECT_THAT(engine->start().notes, ElementsAre());
    return EvalLoss(*engine);
  };
  EXPECT_EQ(loss(file, 0.5), loss(save, 0.5));
  EXPECT_NE(loss(file, Value()), loss(save, 0.5)) << "the values";
}

TEST_F(SaveTest, WhatIsPredictedIsNoChange) {
  const auto start = [&](int64_t samples, bool has_targets, const char* key) {
    Job job = testing::ImageJob(64, {{key, dir()}});
    job.test_data.options.Set("samples", samples).Set("targets", has_targets);
    return Start(job, script_);
  };
  start(45, true, "save")->Save();
  EXPECT_THAT(start(20, false, "resume")->start().notes, ElementsAre());
  EXPECT_THAT(start(20, true, "resume")->start().notes,
              ElementsAre("the job has changed since the save: data.test.samples: 45 "
                          "against 20"));
}

TEST_F(SaveTest, AnotherPlanOfTheSameRanksIsTold) {
  const Value::Map by_hand = {{"partition", Value::IntList({0, 1, 7})}, {"schedule", "gpipe"}};
  SaveAfter(2, 2, by_hand);
  const auto told = [&](const Value::Map& more) {
    Value::Map keys = {{"resume", dir()}};
    keys.insert(keys.end(), more.begin(), more.end());
    const auto engine = Begin(2, keys);
    const auto notes = engine->start().notes;
    engine->Close();
    return notes;
  };
  EXPECT_THAT(told(by_hand), ElementsAre());
  EXPECT_THAT(told({{"partition", "uniform"}, {"schedule", "1f1b"}}), ElementsAre());
  EXPECT_THAT(told({{"partition", "auto"}, {"schedule", "auto"}}),
              ElementsAre(AllOf(HasSubstr("planned anew: cuts 0,"),
                                HasSubstr("trained with cuts 0,1,7, gpipe"))));
}

TEST_F(SaveTest, DamageIsFoundBeforeUseAndTheLastGoodSaveOffered) {
  {
    const auto engine = Begin(2, {{"save", SaveKey()}});
    for (int i = 0; i < 2; ++i) {
      Train(*engine, 2);
      engine->Save();
    }
    engine->Close();
  }
  const std::string file = dir() + "/step-00000004/rank-00001.safetensors";
  std::string bytes = ReadText(file);
  bytes[bytes.size() - 3] ^= 16;
  WriteText(file, bytes);
  EXPECT_THAT(ErrorOfStart({{"resume", dir()}}),
              AllOf(HasSubstr("is damaged"), HasSubstr(file),
                    HasSubstr("the newest whole save is of step 2"),
                    HasSubstr("--resume=" + dir() + "/step-00000002")));
  const auto engine = Begin(2, {{"resume", dir() + "/step-00000002"}, {"save", SaveKey()}});
  EXPECT_EQ(engine->start().step, 2);
}

TEST_F(SaveTest, WeightsGoIntoAnotherJobByLayerName) {
  const std::string save = SaveAfter(3, 2);
  const std::string file = folder_.Inside("weights.safetensors");
  Merge(*Checkpoint::Open(save), file,
        [](const SavedTensor& tensor) { return tensor.kind != TensorKind::kMoment; });
  std::vector<LayerSpec> head = Layers();
  head.push_back(Make("Linear", {5, 5}));
  const auto source = Begin(1, {{"resume", save}});
  const std::vector<TensorDigest> expected = source->Parameters();
  for (const std::string& from : {save, file}) {
    const auto engine = Start(
        MakeJob(Keys(3, {{"weights", from}, {"optimizer", MapOf({{"1", "sgd"}})}}), head), script_);
    EXPECT_EQ(engine->start().step, 0);
    EXPECT_EQ(engine->start().from, from);
    EXPECT_THAT(engine->start().notes, ElementsAre(HasSubstr("7.weight, 7.bias")));
    const std::vector<TensorDigest> got = engine->Parameters();
    ASSERT_EQ(got.size(), expected.size() + 2);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(got[i].digest, expected[i].digest);
  }
  EXPECT_THAT(ErrorOfStart({{"weights", file}}, Layers(25)), HasSubstr("tensor \"4.weight\" is"));
  EXPECT_THAT(ErrorOfStart({{"resume", file}}), HasSubstr("no save to go on from"));
}

TEST_F(SaveTest, OneCommandBeginsWithWeightsAndGoesOnWithItsSaves) {
  const std::string file = folder_.Inside("weights.safetensors");
  Merge(*Checkpoint::Open(SaveAfter(1, 2)), file,
        [](const SavedTensor& tensor) { return tensor.kind != TensorKind::kMoment; });
  std::filesystem::remove_all(dir());
  const Value::Map keys = {{"weights", file}, {"save", SaveKey()}, {"resume", "latest"}};
  const auto with_weights = Begin(1, {{"weights", file}});
  const auto first = Begin(1, keys);
  EXPECT_EQ(first->start().from, file);
  EXPECT_THAT(first->start().notes, Contains(HasSubstr("nothing is saved in")));
  EXPECT_EQ(first->Parameters()[0].digest, with_weights->Parameters()[0].digest);
  Train(*first, 2);
  first->Save();
  const std::string digest = first->Parameters()[0].digest;
  first->Close();
  const auto second = Begin(2, keys);
  EXPECT_EQ(second->start().step, 2);
  EXPECT_EQ(second->Parameters()[0].digest, digest);
}

TEST_F(SaveTest, WeightsOfNobodysNames) {
  std::vector<LayerSpec> named = Layers();
  for (LayerSpec& layer : named) layer.name = "x" + std::to_string(&layer - named.data());
  const std::string save = SaveAfter(1, 2);
  EXPECT_THAT(ErrorOfStart({{"weights", save}}, named), HasSubstr("none of its tensors (0.bias"));
  Value::List all;
  for (size_t i = 0; i < named.size(); ++i) all.emplace_back(static_cast<int64_t>(i));
  EXPECT_THAT(ErrorOfStart({{"weights", MapOf({{"from", save}, {"except", all}})}}),
              HasSubstr("is taken: weights.except leaves out all that this job has"));
}

TEST_F(SaveTest, ASaveThatIsAskedForIsMadeOnceAndTheTrainingGoesOn) {
  const auto engine = Begin(3, {{"save", SaveKey()}});
  Train(*engine, 2);
  engine->RequestSave();
  std::vector<int64_t> saved;
  while (saved.empty()) {  // it is written in the background
    const StepResult result = engine->TrainStep();
    if (result.save) saved.push_back(result.save->step);
  }
  EXPECT_THAT(saved, ElementsAre(3));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(engine->TrainStep().save);
  engine->Close();
  EXPECT_THAT(ListSaves(dir()), ElementsAre("step-00000003"));
}

TEST_F(SaveTest, AStopIsHeardByAllRanks) {
  const auto engine = Begin(3);
  EXPECT_FALSE(engine->TrainStep().stop);
  engine->RequestStop();
  EXPECT_TRUE(engine->TrainStep().stop);
}

}  // namespace
}  // namespace strata
