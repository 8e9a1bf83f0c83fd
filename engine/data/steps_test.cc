// Tests the samples that each step makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "engine/base/testing.h"
#include "engine/data/testing.h"
#include "engine/data/testing_sources.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class StepsTest : public DatasetTest {
 protected:
  StepsTest() { context_.script = &script_; }

  /// `count` samples with the input (i, i + 1) and the target i % 3.
  static Value Numbers(int64_t count) {
    return MakeDataSource("dataset", {}, {{"length", count}, {"get", FakeFunction()}}, "net.lua:1");
  }
  /// Data of one sample, a float image.
  Value Image(std::vector<int64_t> shape, std::vector<float> pixels) {
    shape.insert(shape.begin(), 1);
    const data::Array array = {
        "", {shape, DType::kFloat32}, reinterpret_cast<const std::byte*>(pixels.data()), nullptr};
    const std::string path = (folder_ / "image.npy").string();
    data::WriteArrays(path, {array});
    return MakeDataSource("npy", {path}, {}, "net.lua:1");
  }
  static Value Step(const char* name, const Value& of, const Value::Map& named = {}) {
    return MakeDataStep(name, of, {}, named, "net.lua:2");
  }
  std::unique_ptr<Dataset> OpenStep(const Value& source) {
    return OpenDataset(SpecOf(source, context_), context_);
  }
  static std::vector<int64_t> Firsts(const Dataset& dataset) {
    std::vector<int64_t> firsts;
    for (int64_t i = 0; i < dataset.size(); ++i) firsts.push_back(Ints(dataset, i, false)[0]);
    return firsts;
  }
  std::string ErrorOfStep(const Value& source) {
    return strata::ErrorOf([&] { OpenStep(source); });
  }

  FakeDataScript script_;
};

/// Records the seeds that functions are called with; filter keeps every sample.
class SeedScript : public FakeDataScript {
 public:
  PlainSample Map(const FunctionRef& function, const PlainSample& sample, uint64_t seed) override {
    seeds.push_back(seed);
    return FakeDataScript::Map(function, sample, seed);
  }
  bool Keeps(const FunctionRef&, const PlainSample&, uint64_t seed) override {
    seeds.push_back(seed);
    return true;
  }
  std::vector<uint64_t> seeds;
};

TEST_F(StepsTest, PartsShareTheSamplesOut) {
  std::set<int64_t> all;
  for (const int begin : {0, 6, 8}) {
    const int end = begin == 0 ? 6 : begin == 6 ? 8 : 10;
    const auto part =
        OpenStep(Step("part", Numbers(10), {{"begin", begin}, {"end", end}, {"seed", 4}}));
    EXPECT_EQ(part->size(), end - begin);
    for (const int64_t first : Firsts(*part)) EXPECT_TRUE(all.insert(first).second) << first;
  }
  EXPECT_EQ(all.size(), 10u);
  const auto in_order = OpenStep(Step("part", Numbers(10), {{"begin", 2}, {"end", 5}}));
  EXPECT_THAT(Firsts(*in_order), ElementsAre(2, 3, 4));
}

TEST_F(StepsTest, ChooseSamples) {
  EXPECT_THAT(Firsts(*OpenStep(Step("take", Numbers(9), {{"count", 2}}))), ElementsAre(0, 1));
  EXPECT_EQ(OpenStep(Step("take", Numbers(9), {{"count", 20}}))->size(), 9);
  EXPECT_THAT(Firsts(*OpenStep(Step("concat", Value::List{Numbers(2), Numbers(3)}))),
              ElementsAre(0, 1, 0, 1, 2));
  EXPECT_THAT(Firsts(*OpenStep(Step("filter", Numbers(7), {{"f", FakeFunction()}}))),
              ElementsAre(0, 2, 3, 5, 6))
      << "targets 0 and 2 are even";
  const auto shuffled = Firsts(*OpenStep(Step("shuffled", Numbers(30), {{"seed", 1}})));
  EXPECT_NE(shuffled, Firsts(*OpenStep(Numbers(30))));
  EXPECT_EQ(shuffled, Firsts(*OpenStep(Step("shuffled", Numbers(30), {{"seed", 1}}))));
  EXPECT_NE(shuffled, Firsts(*OpenStep(Step("shuffled", Numbers(30), {{"seed", 2}}))));
}

TEST_F(StepsTest, SamplesAreOfTheFilesThatTheyAreReadFrom) {
  for (const char* name : {"a/1.png", "a/2.png", "b/1.png"}) Write(name, "");
  const Value images = MakeDataSource(
      "image_folder", {}, {{"path", folder_.string()}, {"size", 8}, {"targets", false}}, "");
  const Value part = Step("part", images, {{"begin", 1}, {"end", 3}});
  const auto both = OpenStep(Step("cache", Step("concat", Value::List{images, part})));
  std::vector<std::string> names;
  for (int64_t i = 0; i < both->size(); ++i) names.push_back(both->name_of(i));
  EXPECT_THAT(names, ElementsAre("a/1.png", "a/2.png", "b/1.png", "a/2.png", "b/1.png"));
  EXPECT_EQ(OpenStep(Numbers(2))->name_of(1), "");
}

TEST_F(StepsTest, FunctionsOfAChainDrawDifferentNumbers) {
  SeedScript script;
  context_.script = &script;
  const auto step = [](const char* name, const Value& of) {
    return Step(name, of, {{"f", FakeFunction()}});
  };
  const auto seeds_of = [&](const Value& source) {
    const auto data = OpenStep(source);
    script.seeds.clear();
    data->ReadPlain({1, 4});
    return script.seeds;
  };
  const Value few = Step("take", Numbers(3), {{"count", 2}});
  for (const Value& of : {Numbers(3), few, step("filter", Numbers(3))}) {
    EXPECT_THAT(seeds_of(step("map", of)), ElementsAre(SampleSeed(0, {1, 4}, 2)))
        << "as in trainings that older versions began";
  }
  const auto twice = seeds_of(step("map", Step("take", step("map", few), {{"count", 2}})));
  ASSERT_THAT(twice, SizeIs(2));
  EXPECT_NE(twice[0], twice[1]);
  script.seeds.clear();
  OpenStep(step("filter", Numbers(1)));
  const uint64_t once = script.seeds.at(0);
  script.seeds.clear();
  OpenStep(step("filter", step("filter", Numbers(1))));
  EXPECT_THAT(std::set<uint64_t>(script.seeds.begin(), script.seeds.end()),
              AllOf(SizeIs(2), Contains(once)));
}

TEST_F(StepsTest, FiltersDrawNumbersOfTheSample) {
  SeedScript script;
  context_.script = &script;
  const auto seeds = [&](int64_t seed) {
    context_.seed = seed;
    script.seeds.clear();
    OpenStep(Step("filter", Numbers(4), {{"f", FakeFunction()}}));
    return std::set<uint64_t>(script.seeds.begin(), script.seeds.end());
  };
  const std::set<uint64_t> first = seeds(0);
  EXPECT_EQ(first.size(), 4u) << "a seed for each sample";
  EXPECT_EQ(seeds(0), first) << "whoever opens it";
  EXPECT_EQ(seeds(5), first) << "who splits the data knows no job";
}

TEST_F(StepsTest, PartsOfAConcatAreNoTwins) {
  const Value image = Image({1, 1, 2}, {1, 2});
  const Value jitter = Step("jitter", image, {{"brightness", 0.5}});
  const auto both = OpenStep(Step("concat", Value::List{jitter, jitter}));
  EXPECT_EQ(Floats(*both, 0), Floats(*OpenStep(jitter), 0)) << "the first is as it is alone";
  EXPECT_NE(Floats(*both, 0), Floats(*both, 1));
}

TEST_F(StepsTest, ConcatRefusesOtherSamples) {
  EXPECT_THAT(ErrorOfStep(Step("concat", Value::List{Numbers(2), Image({1, 2, 2}, {1, 2, 3, 4})})),
              HasSubstr("concat: expected samples as those of dataset: 2 samples"));
}

TEST_F(StepsTest, NamesOfClassesAreThoseOfTheData) {
  const auto table = [&](const char* name, const char* text, bool has_targets = true) {
    return MakeDataSource("csv", {Write(name, text)}, {{"targets", has_targets}, {"target", "y"}},
                          "net.lua:1");
  };
  const Value one = table("1.csv", "x,y\n1,cat\n2,dog\n");
  const Value two = table("2.csv", "x,y\n3,cat\n4,owl\n");
  const auto names = [&](const Value& source) { return OpenStep(source)->class_names(); };
  EXPECT_THAT(names(one), ElementsAre("cat", "dog"));
  EXPECT_THAT(names(Step("concat", Value::List{one, one})), ElementsAre("cat", "dog"));
  EXPECT_THAT(names(Step("map", one, {{"f", FakeFunction()}})), ElementsAre());
  const Value with = table("3.csv", "x,y\n1,2\n");
  const Value without = table("4.csv", "x,y\n1,2\n", /*has_targets=*/false);
  EXPECT_TRUE(OpenStep(Step("concat", Value::List{with, with}))->has_targets());
  EXPECT_FALSE(OpenStep(Step("concat", Value::List{with, without}))->has_targets());
  EXPECT_FALSE(OpenStep(Step("concat", Value::List{without, with}))->has_targets());
}

TEST_F(StepsTest, ConcatTakesClassesByName) {
  const auto table = [&](const char* name, const char* text) {
    return MakeDataSource("csv", {Write(name, text)}, {{"target", "y"}}, "net.lua:1");
  };
  const Value all = table("1.csv", "x,y\n1,bird\n2,cat\n3,dog\n");
  const Value two = table("2.csv", "x,y\n4,dog\n5,cat\n");
  const auto both = OpenStep(Step("concat", Value::List{all, two, all}));
  EXPECT_THAT(both->class_names(), ElementsAre("bird", "cat", "dog"));
  EXPECT_EQ(both->classes(), 3);
  std::vector<int64_t> labels, plain;
  for (int64_t i = 0; i < both->size(); ++i) {
    labels.push_back(Ints(*both, i, true)[0]);
    plain.push_back(both->ReadPlain(i).target.bytes[0]);
    EXPECT_EQ(Floats(*both, i)[0], static_cast<float>(i < 5 ? i + 1 : i - 4));
  }
  EXPECT_THAT(labels, ElementsAre(0, 1, 2, 2, 1, 0, 1, 2));
  EXPECT_EQ(plain, labels);
  EXPECT_THAT(ErrorOfStep(Step("concat", Value::List{two, all})),
              HasSubstr("part 2 of concat has the class \"bird\", which part 1 has not: part 2 of "
                        "concat has bird, cat, dog; part 1 has cat, dog"));
  // The first part may have numbers as classes, without names. Then the first names that occur hold
  // for all parts.
  const Value numbers = MakeDataSource("csv", {Write("0.csv", "x,y\n9,1\n")},
                                       {{"target", "y"}, {"task", "classes"}}, "net.lua:1");
  const auto mixed = OpenStep(Step("concat", Value::List{numbers, all, two}));
  EXPECT_THAT(mixed->class_names(), ElementsAre());
  labels.clear();
  for (int64_t i = 0; i < mixed->size(); ++i) labels.push_back(Ints(*mixed, i, true)[0]);
  EXPECT_THAT(labels, ElementsAre(1, 0, 1, 2, 2, 1));
  EXPECT_THAT(ErrorOfStep(Step("concat", Value::List{numbers, two, all})),
              HasSubstr("part 3 of concat has the class \"bird\", which part 2 has not"));
  const auto mapped = [](const Value& of) { return Step("map", of, {{"f", FakeFunction()}}); };
  EXPECT_THAT(ErrorOfStep(Step("concat", Value::List{numbers, mapped(two), mapped(all)})),
              HasSubstr("part 3 of concat has other classes than part 2 of concat"));
  // One-hot vectors are not class numbers and cannot be renumbered; wider ones have another shape
  // than the first part's.
  const auto one_hot = [](const Value& of) { return Step("one_hot", of); };
  const Value cow = table("3.csv", "x,y\n1,ant\n2,bird\n3,cow\n");
  EXPECT_THAT(ErrorOfStep(Step("concat", Value::List{one_hot(all), one_hot(cow)})),
              HasSubstr("targets that are no classes any more"));
}

TEST_F(StepsTest, DataIsOpenedWithTheClassesOfTheTraining) {
  const std::string path = Write("1.csv", "x,y\n4,dog\n5,cat\n");
  DataSpec spec = SpecOf(MakeDataSource("csv", {path}, {}, "net.lua:1"), context_);
  spec.options.Set("class_names", Value::List{"bird", "cat", "dog"});
  const auto data = OpenDataset(spec, context_);
  EXPECT_THAT(data->class_names(), ElementsAre("bird", "cat", "dog"));
  EXPECT_EQ(data->classes(), 3);
  EXPECT_EQ(Ints(*data, 0, true)[0], 2);
  EXPECT_EQ(Ints(*data, 1, true)[0], 1);
}

TEST_F(StepsTest, CacheReadsEachSampleOnce) {
  const auto cached = OpenStep(Step("cache", Step("map", Numbers(3), {{"f", FakeFunction()}})));
  // map draws again in each epoch; the cache keeps the samples of the first epoch.
  EXPECT_EQ(BytesOfSample(*cached, {1, 0}), BytesOfSample(*cached, {1, 5}));
  const auto fresh = OpenStep(Step("map", Numbers(3), {{"f", FakeFunction()}}));
  EXPECT_EQ(BytesOfSample(*cached, {1, 3}), BytesOfSample(*fresh, {1, 0}));
  EXPECT_NE(BytesOfSample(*fresh, {1, 0}), BytesOfSample(*fresh, {1, 5}));
}

// ---- images ----

TEST_F(StepsTest, CropsAreWindowsOfTheImage) {
  std::vector<float> ramp(5 * 6);
  std::iota(ramp.begin(), ramp.end(), 1.0f);
  const auto crop = OpenStep(Step("random_crop", Image({1, 5, 6}, ramp),
                                  {{"size", Value::IntList({3, 4})}, {"padding", 1}}));
  EXPECT_EQ(crop->input().ToString(), "float32 (1, 3, 4)");
  std::set<std::pair<int64_t, int64_t>> places;
  for (int64_t epoch = 0; epoch < 300; ++epoch) {
    std::vector<float> window(12);
    crop->Read({0, epoch}, reinterpret_cast<std::byte*>(window.data()), nullptr);
    int found = 0;
    for (int64_t top = -1; top <= 3; ++top) {
      for (int64_t left = -1; left <= 3; ++left) {
        std::vector<float> expected;
        for (int64_t y = top; y < top + 3; ++y) {
          for (int64_t x = left; x < left + 4; ++x) {
            const bool inside = y >= 0 && y < 5 && x >= 0 && x < 6;
            expected.push_back(inside ? ramp[static_cast<size_t>(y * 6 + x)] : 0);
          }
        }
        if (expected != window) continue;
        ++found;
        places.emplace(top, left);
      }
    }
    EXPECT_EQ(found, 1) << epoch;
  }
  EXPECT_EQ(places.size(), 25u) << "every place comes";
}

TEST_F(StepsTest, FlipsMirrorRows) {
  const Value image = Image({2, 1, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(Floats(*OpenStep(Step("flip", image, {{"chance", 1}})), 0),
              ElementsAre(3, 2, 1, 6, 5, 4));
  EXPECT_THAT(Floats(*OpenStep(Step("flip", image, {{"chance", 0}})), 0),
              ElementsAre(1, 2, 3, 4, 5, 6));
  const auto half = OpenStep(Step("flip", image));
  int flipped = 0;
  for (int64_t epoch = 0; epoch < 400; ++epoch) {
    std::vector<float> pixels(6);
    half->Read({0, epoch}, reinterpret_cast<std::byte*>(pixels.data()), nullptr);
    flipped += pixels[0] == 3;
  }
  EXPECT_NEAR(flipped, 200, 5 * 10) << "five deviations; the numbers are the same in every run";
}

TEST_F(StepsTest, TwoEqualStepsDrawApart) {
  const Value image = Image({1, 1, 2}, {1, 2});
  const auto twice = OpenStep(Step("flip", Step("flip", image)));
  int changed = 0;
  for (int64_t epoch = 0; epoch < 100; ++epoch) {
    float pixels[2];
    twice->Read({0, epoch}, reinterpret_cast<std::byte*>(pixels), nullptr);
    changed += pixels[0] == 2;
  }
  EXPECT_GT(changed, 20) << "with the same draws no image would change";
}

TEST_F(StepsTest, NormaliseAndResize) {
  const Value image = Image({2, 1, 2}, {1, 2, 3, 4});
  const auto normal =
      OpenStep(Step("normalise", image, {{"mean", Value::List{1, 2}}, {"std", Value::List{2}}}));
  EXPECT_THAT(Floats(*normal, 0), ElementsAre(0, 0.5, 0.5, 1));
  EXPECT_THAT(ErrorOfStep(Step("normalise", image,
                               {{"mean", Value::List{1, 2, 3}}, {"std", Value::List{2}}})),
              HasSubstr("mean has 3 numbers, the input has 2 channels"));
  EXPECT_THAT(
      ErrorOfStep(Step("normalise", image, {{"mean", Value::List{1}}, {"std", Value::List{0}}})),
      HasSubstr("std must be above 0"));
  EXPECT_THAT(Floats(*OpenStep(Step("resize", image, {{"size", 1}})), 0), ElementsAre(1.5, 3.5));
  EXPECT_THAT(ErrorOfStep(Step("resize", Numbers(2), {{"size", 1}})), HasSubstr("to_float{}"));
}

TEST_F(StepsTest, JitterKeepsTheMeanWhereOnlyContrastChanges) {
  const auto jitter = OpenStep(Step("jitter", Image({1, 1, 2}, {0.2f, 0.6f}), {{"contrast", 0.5}}));
  std::set<float> seen;
  for (int64_t epoch = 0; epoch < 50; ++epoch) {
    float pixels[2];
    jitter->Read({0, epoch}, reinterpret_cast<std::byte*>(pixels), nullptr);
    EXPECT_NEAR(pixels[0] + pixels[1], 0.8, 1e-6);
    EXPECT_GE(pixels[1] - pixels[0], 0.2 - 1e-6);
    EXPECT_LE(pixels[1] - pixels[0], 0.6 + 1e-6);
    seen.insert(pixels[0]);
  }
  EXPECT_GT(seen.size(), 40u);
}

TEST_F(StepsTest, FloatsAndOneHot) {
  EXPECT_THAT(Floats(*OpenStep(Step("to_float", Numbers(3), {{"scale", 0.5}})), 2),
              ElementsAre(1, 1.5));
  const auto hot = OpenStep(Step("one_hot", Numbers(3), {{"classes", 4}}));
  float target[4];
  hot->Read(2, nullptr, reinterpret_cast<std::byte*>(target));
  EXPECT_THAT(target, ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(ErrorOfStep(Step("one_hot", Numbers(3))), HasSubstr("needs classes"));
  const auto few = OpenStep(Step("one_hot", Numbers(3), {{"classes", 2}}));
  EXPECT_THAT(strata::ErrorOf([&] { few->Read(2, nullptr, reinterpret_cast<std::byte*>(target)); }),
              HasSubstr("sample 2 has the class 2, expected 0 to 1"));
}

/// Inputs are i and targets are one-hot, so the mixing share can be computed from both, and must be
/// equal.
TEST_F(StepsTest, MixUpMixesInputsAndTargetsAlike) {
  const Value base =
      Step("one_hot", Step("to_float", Numbers(3), {{"scale", 1}}), {{"classes", 3}});
  const auto mixed = OpenStep(Step("mix_up", base, {{"alpha", 1.0}}));
  std::vector<double> shares;
  for (int64_t epoch = 0; epoch < 500; ++epoch) {
    float input[2], target[3];
    mixed->Read({1, epoch}, reinterpret_cast<std::byte*>(input),
                reinterpret_cast<std::byte*>(target));
    EXPECT_NEAR(target[0] + target[1] + target[2], 1, 1e-6);
    EXPECT_NEAR(input[0], target[1] + 2 * target[2], 1e-6);
    float apart = 0;
    mixed->Read({1, epoch}, reinterpret_cast<std::byte*>(&input), nullptr);
    apart = std::abs(input[0] - (target[1] + 2 * target[2]));
    EXPECT_LT(apart, 1e-6) << "the halves are read apart on several stages";
    if (target[1] < 1) shares.push_back(target[1]);
  }
  // alpha = 1 is the uniform distribution; in a third of the cases a sample is mixed with itself.
  EXPECT_NEAR(
      std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(shares.size()), 0.5,
      5 * 0.29 / std::sqrt(333));
  EXPECT_THAT(ErrorOfStep(Step("mix_up", Numbers(3))), HasSubstr("one_hot{}"));
}

}  // namespace
}  // namespace strata
