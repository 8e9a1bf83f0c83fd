// Saves of jobs with pipe, data and model axes: every grid can load what any other grid has saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/testing.h"
#include "engine/checkpoint/weights/convert_elements.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/job/data_source.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/testing_job.h"

namespace strata {
namespace {

const WithGradientBlocks kSmallBlocks(256);

using ::testing::ElementsAre;
using testing::FakeScript;
using ::testing::HasSubstr;
using testing::Make;
using testing::MapOf;
using testing::Start;

constexpr int kStepsBefore = 3, kStepsBehind = 3;

struct Grid {
  int pipe, data, model;
  int zero = 0;
};

std::string ToString(const Grid& grid) {
  return Str(grid.pipe, "_", grid.data, "_", grid.model, grid.zero ? Str("_zero", grid.zero) : "");
}

void PrintTo(const Grid& grid, std::ostream* out) { *out << ToString(grid); }

constexpr Grid kSaved = {2, 2, 2, 1};

LayerSpec Tied(LayerSpec layer) {
  layer.tied_key = "words";
  return layer;
}

/// 12 kinds of tokens, every kind of divided layer, dropout everywhere. The first and the last
/// layer share a tensor, of which each rank of the model axis has some rows.
const std::vector<LayerSpec>& Layers() {
  static const std::vector<LayerSpec> layers = {
      Tied(Make("Embedding", {12, 16}, {{"split", "row"}})),
      Make(
          "TransformerEncoderLayer", {16, 4},
          {{"dim_feedforward", 24}, {"batch_first", true}, {"norm_first", true}, {"causal", true}}),
      Make("MultiheadAttention", {16, 4}, {{"batch_first", true}, {"split", "heads"}}),
      Make("TransformerDecoderLayer", {16, 4},
           {{"dim_feedforward", 24}, {"batch_first", true}, {"split", "sequence"}}),
      Make("Dropout", {0.1}),
      Make("Linear", {16, 24}, {{"split", "column"}}),
      Make("ReLU"),
      Make("Linear", {24, 16}, {{"split", "row"}}),
      Make("LayerNorm", {16}, {{"split", "sequence"}}),
      Tied(Make("Linear", {16, 12}, {{"split", "column"}, {"bias", false}}))};
  return layers;
}

Job MakeJob(const Grid& grid, const Value::Map& more = {}) {
  const Value::Map keys = {
      {"parallel", MapOf({{"pipe", grid.pipe}, {"data", grid.data}, {"model", grid.model}})},
      {"data", MapOf({{"train", MakeDataSource("tokens", {12}, {{"length", 8}, {"samples", 96}},
                                               "net.lua:9")}})},
      {"batch", MapOf({{"micro_batches", 4 / grid.data}, {"micro_batch_size", 4}})},
      // Not Adam: it makes full steps for gradients that are only rounding errors (of the keys'
      // bias).
      {"optimizer", MapOf({{"1", "sgd"}, {"lr", 0.1}, {"momentum", 0.9}})},
      {"lr_schedule", MapOf({{"1", "cosine"}, {"warmup", 2}})},
      {"zero", grid.zero},
      {"tie_check", 1},
      {"clip", 0.5},
      {"steps", 8}};
  return testing::MakeJob(Layers(), Make("CrossEntropyLoss"), testing::With(keys, more));
}

/// The results of a training.
struct Course {
  std::vector<double> losses, norms;
  std::vector<TensorDigest> parameters;

  bool operator==(const Course& other) const {
    return losses == other.losses && norms == other.norms && Bits() == other.Bits();
  }
  std::vector<std::string> Bits() const {
    std::vector<std::string> bits;
    for (const TensorDigest& parameter : parameters) bits.push_back(parameter.digest);
    return bits;
  }
};

Course Train(Engine& engine, int steps) {
  Course course;
  for (int step = 0; step < steps; ++step) {
    const StepResult result = engine.TrainStep();
    course.losses.push_back(result.loss);
    course.norms.push_back(result.grad_norm);
  }
  course.parameters = engine.Parameters();
  return course;
}

void ExpectNear(double a, double b, const std::string& what) {
  EXPECT_LE(std::abs(a - b), 1e-6 * std::max(1.0, std::abs(b))) << what << ": " << a << ", " << b;
}

void ExpectNear(const Course& a, const Course& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) {
    ExpectNear(a.losses[i], b.losses[i], Str("loss of step ", i));
    ExpectNear(a.norms[i], b.norms[i], Str("norm of step ", i));
  }
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (size_t i = 0; i < a.parameters.size(); ++i) {
    EXPECT_EQ(a.parameters[i].path, b.parameters[i].path);
    ExpectNear(a.parameters[i].norm, b.parameters[i].norm, a.parameters[i].path);
  }
}

/// Every tensor of a save as bytes, joined from its slices.
using Bytes = std::map<std::string, std::string>;

Bytes BytesOf(const std::string& save) {
  Bytes all;
  const auto checkpoint = Checkpoint::Open(save);
  for (const SavedTensor& tensor : checkpoint->manifest().tensors) {
    std::string& bytes = all[tensor.name];
    checkpoint->ReadWhole(tensor, [&](const void* piece, int64_t count) {
      bytes.append(static_cast<const char*>(piece), static_cast<size_t>(count));
    });
  }
  return all;
}

/// A save of the training on kSaved, and the results of the steps after it.
struct Saved {
  TestFolder folder;
  std::string path;
  Course rest;
};

Value SaveTo(const std::string& folder) { return MapOf({{"dir", folder}}); }

std::unique_ptr<Engine> Begin(const Grid& grid, const Value::Map& more) {
  static FakeScript script;
  return Start(MakeJob(grid, more), script);
}

const Saved& Original() {
  static Saved* const saved = [] {
    auto* made = new Saved;
    const auto engine = Begin(kSaved, {{"save", SaveTo(made->folder.path())}});
    Train(*engine, kStepsBefore);
    made->path = engine->Save().path;
    made->rest = Train(*engine, kStepsBehind);
    engine->Close();
    return made;
  }();
  return *saved;
}

class SavedGrids : public ::testing::TestWithParam<Grid> {};

TEST_P(SavedGrids, GoOnAsTheUninterruptedTrainingDid) {
  const Grid grid = GetParam();
  const Saved& original = Original();
  const auto engine = Begin(grid, {{"resume", original.path}});
  EXPECT_EQ(engine->start().step, kStepsBefore);
  EXPECT_THAT(engine->start().notes, ElementsAre());
  const Course rest = Train(*engine, kStepsBehind);
  const bool same_bits = grid.data == kSaved.data && grid.model == kSaved.model;
  if (same_bits) {
    EXPECT_EQ(rest, original.rest);
  }
  ExpectNear(rest, original.rest);
}

/// A save that is loaded on a grid and saved again at once keeps every bit.
TEST_P(SavedGrids, KeepEveryBit) {
  const TestFolder folder;
  const Saved& original = Original();
  const auto engine =
      Begin(GetParam(), {{"resume", original.path}, {"save", SaveTo(folder.path())}});
  const std::string path = engine->Save().path;
  engine->Close();
  EXPECT_EQ(TroubleWithSave(path), "");
  EXPECT_EQ(BytesOf(path), BytesOf(original.path));
}

INSTANTIATE_TEST_SUITE_P(All, SavedGrids,
                         ::testing::Values(kSaved, Grid{2, 2, 2}, Grid{4, 2, 2, 1}, Grid{1, 1, 1},
                                           Grid{4, 1, 1}, Grid{1, 4, 1, 1}, Grid{1, 1, 2},
                                           Grid{2, 2, 2, 2}, Grid{1, 1, 4}, Grid{1, 2, 4, 1}),
                         [](const auto& info) { return ToString(info.param); });

TEST(SavedGridsTest, ASaveOfOneRankGoesOnOnTwoAndBack) {
  const TestFolder one, two;
  const auto start = Begin({1, 1, 1}, {{"save", SaveTo(one.path())}});
  Train(*start, 2);
  start->Save();
  const Course expected = Train(*start, 2);
  Course rest;
  {
    const auto shared = Begin({1, 1, 2}, {{"resume", one.path()}, {"save", SaveTo(two.path())}});
    EXPECT_EQ(shared->start().step, 2);
    rest = Train(*shared, 1);
    shared->Save();
    shared->Close();
  }
  const auto back = Begin({1, 1, 1}, {{"resume", two.path()}});
  EXPECT_EQ(back->start().step, 3);
  const Course last = Train(*back, 1);
  ExpectNear(rest.losses[0], expected.losses[0], "loss");
  ExpectNear(last.losses[0], expected.losses[1], "loss");
}

TEST(SavedGridsTest, AdamGoesOnBitForBit) {
  const Value adam = MapOf({{"1", "adamw"}, {"lr", 0.01}, {"amsgrad", true}});
  const TestFolder folder;
  const auto whole = Begin(kSaved, {{"optimizer", adam}, {"save", SaveTo(folder.path())}});
  Train(*whole, 2);
  whole->Save();
  const Course expected = Train(*whole, 2);
  const auto engine = Begin(kSaved, {{"optimizer", adam}, {"resume", folder.path()}});
  EXPECT_EQ(Train(*engine, 2), expected);
}

TEST(SavedGridsTest, LayersMoveOnAnyGrid) {
  const Grid grid = {3, 2, 2, 1};
  const auto train = [&](bool moves) {
    const auto engine = Begin(grid, {});
    Course first = Train(*engine, kStepsBefore);
    if (moves) {
      EXPECT_THAT(engine->Recut({0, 5, 8, 10}).moves, HasSubstr("pipe rank"));
      EXPECT_GT(engine->Recut({0, 1, 9, 10}).bytes, 0);
    }
    return std::pair(std::move(first), Train(*engine, kStepsBehind));
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(SavedGridsTest, SharedTensorsAreSavedInSlicesAndTiedOnesOnce) {
  const Manifest manifest = ReadManifest(Original().path);
  const auto slices = [&](const std::string& name) {
    std::vector<std::string> texts;
    const SavedTensor* tensor = manifest.Find(name);
    if (!tensor) return texts;
    for (const SavedSlice& saved : tensor->slices) texts.push_back(saved.slice.ToString());
    std::ranges::sort(texts);
    return texts;
  };
  EXPECT_THAT(slices("0.weight"), ElementsAre("[0:6, 0:16]", "[6:12, 0:16]"));
  EXPECT_THAT(slices("9.weight"), ElementsAre());
  EXPECT_THAT(slices("1.self_attn.in_proj_bias"),
              ElementsAre("[0:8]", "[16:24]", "[24:32]", "[32:40]", "[40:48]", "[8:16]"));
  EXPECT_THAT(slices("7.weight"), ElementsAre("[0:16, 0:12]", "[0:16, 12:24]"));
  EXPECT_THAT(slices("7.bias"), ElementsAre("[0:16]"));
}

TEST(SavedGridsTest, WeightsBeginATrainingOnSharedLayers) {
  const auto from = Begin({1, 1, 1}, {{"resume", Original().path}});
  const auto engine = Begin({2, 1, 2}, {{"weights", Original().path}});
  EXPECT_EQ(engine->start().step, 0);
  const std::vector<TensorDigest> got = engine->Parameters(), expected = from->Parameters();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].digest, expected[i].digest);
}

TEST(SavedGridsTest, FrozenSharedLayersAreSavedWithoutMoments) {
  const TestFolder folder;
  const Value::Map freeze = {{"freeze", Value::List{1, "type:MultiheadAttention"}}};
  Value::Map keys = freeze;
  keys.emplace_back("save", SaveTo(folder.path()));
  const auto engine = Begin({1, 1, 2}, keys);
  Train(*engine, 1);
  const std::string path = engine->Save().path;
  const Course expected = Train(*engine, 1);
  engine->Close();
  EXPECT_EQ(ReadManifest(path).Find("1.linear1.weight")->slices.size(), 2u);
  EXPECT_FALSE(ReadManifest(path).Find("1.linear1.weight#momentum_buffer"));
  keys = freeze;
  keys.emplace_back("resume", path);
  EXPECT_EQ(Train(*Begin({1, 1, 2}, keys), 1), expected);
}

/// With ZeRO-1, ties and divided layers, the loaded values are those of the save, converted.
TEST(SavedGridsTest, AnotherTypeOfParametersGoesOn) {
  const Value half = MapOf({{"1", "bf16"}, {"params", "bf16"}});
  for (const Grid grid : {kSaved, Grid{1, 1, 1}, Grid{1, 2, 4, 1}}) {
    const TestFolder rounded, back;
    {
      const auto engine = Begin(
          grid,
          {{"precision", half}, {"resume", Original().path}, {"save", SaveTo(rounded.path())}});
      engine->Save();
      engine->Close();
    }
    const auto engine = Begin(kSaved, {{"resume", rounded.path()}, {"save", SaveTo(back.path())}});
    const Bytes original = BytesOf(Original().path), all = BytesOf(engine->Save().path);
    ASSERT_EQ(all.size(), original.size());
    const Manifest manifest = ReadManifest(Str(rounded.path(), "/", SaveName(kStepsBefore)));
    int rounded_tensors = 0;
    for (const auto& [name, bytes] : original) {
      std::string expected(bytes.size(), 0), two_bytes(bytes.size() / 2, 0);
      if (manifest.Find(name)->spec.dtype == DType::kFloat32) {  // a parameter of a norm
        EXPECT_EQ(all.at(name), bytes) << name;
        continue;
      }
      ++rounded_tensors;
      const auto count = static_cast<int64_t>(bytes.size() / sizeof(float));
      ConvertElements(DType::kFloat32, bytes.data(), DType::kBFloat16, two_bytes.data(), count);
      ConvertElements(DType::kBFloat16, two_bytes.data(), DType::kFloat32, expected.data(), count);
      EXPECT_EQ(all.at(name), expected) << name << " on " << ToString(grid);
    }
    EXPECT_GT(rounded_tensors, 40);
    Train(*engine, 1);
    engine->Close();
  }
}

/// Divided layers and a tie that spans the pipeline begin to learn in the fourth step.
TEST(SavedGridsTest, ParametersThatLearnLaterDoSoAlikeOnAnyGrid) {
  const Value adam = MapOf({{"1", "adamw"}, {"lr", 0.01}});
  const Value frozen = Value::List{0, 1, 9};
  const TestFolder folder;
  {
    const auto engine =
        Begin(kSaved, {{"optimizer", adam}, {"freeze", frozen}, {"save", SaveTo(folder.path())}});
    Train(*engine, kStepsBefore);
    engine->Save();
    engine->Close();
  }
  const auto go_on = [&](const Grid& grid, bool moves) {
    const TestFolder later;
    Value::Map keys = {{"optimizer", adam}, {"resume", folder.path()}};
    keys.emplace_back("save", SaveTo(later.path()));
    Course course;
    {
      const auto engine = Begin(grid, keys);
      EXPECT_THAT(engine->start().notes,
                  ElementsAre(HasSubstr("steps count from 1: 0.weight, 1.self_attn.in_proj")));
      Train(*engine, 1);
      if (moves) engine->Recut({0, 5, 8, 10});
      const std::string path = engine->Save().path;
      EXPECT_EQ(ReadManifest(path).training.began.at("1.linear1.weight"), kStepsBefore);
      course = Train(*engine, 2);
      engine->Close();
    }
    keys = {{"optimizer", adam}, {"resume", later.path()}};
    EXPECT_EQ(Train(*Begin(grid, keys), 2), course);
    return course;
  };
  const Course expected = go_on(kSaved, false);
  EXPECT_EQ(go_on({2, 2, 2}, false), expected);
  EXPECT_EQ(go_on({3, 2, 2, 1}, true), expected);
  EXPECT_EQ(go_on({1, 2, 2, 1}, false), expected);
}

TEST(SavedGridsTest, WhatDoesNotFitIsRefusedByTensor) {
  const Value plain = MapOf({{"1", "sgd"}, {"lr", 0.1}});
  const Value::Map resume = {{"resume", Original().path}, {"optimizer", plain}};
  EXPECT_THAT(ErrorOf([&] {
                Begin({1, 1, 2}, resume)->Close();
              }),
              HasSubstr("tensor \"0.weight#momentum_buffer\" (float32 (12, 16)) has no place"));
}

}  // namespace
}  // namespace strata
