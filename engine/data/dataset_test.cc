#include "engine/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "engine/base/text.h"
#include "engine/data/testing.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST_F(DatasetTest, DigitsHoldsOutEveryFifth) {
  const std::string path = Write("digits.csv", DigitsLines(23));
  const auto train = Open("digits", Options({{"path", path}}));
  const auto test = Open("digits", Options({{"path", path}, {"split", "test"}}));
  EXPECT_EQ(train->size(), 19);
  EXPECT_EQ(test->size(), 4);
  std::vector<int64_t> test_labels, train_labels;
  for (int64_t i = 0; i < test->size(); ++i) test_labels.push_back(Ints(*test, i, true)[0]);
  for (int64_t i = 0; i < 6; ++i) train_labels.push_back(Ints(*train, i, true)[0]);
  EXPECT_EQ(test_labels, (std::vector<int64_t>{4, 9, 4, 9}));
  EXPECT_EQ(train_labels, (std::vector<int64_t>{0, 1, 2, 3, 5, 6}));
  EXPECT_EQ(train->input().ToString(), "float32 (1, 8, 8)");
  EXPECT_FLOAT_EQ(Floats(*train, 4)[3], 8 / 16.0f);
  EXPECT_EQ(train->classes(), 10);
}

TEST_F(DatasetTest, DigitsNamesTheBrokenPlace) {
  std::string text = DigitsLines(10);
  text.replace(text.find('\n') + 1, 1, "x");
  EXPECT_THAT(ErrorOf("digits", Options({{"path", Write("a.csv", text)}})),
              testing::AllOf(HasSubstr("a.csv:2"), HasSubstr("column 1")));
  EXPECT_THAT(ErrorOf("digits", Options({{"path", Write("b.csv", "1,2,3\n")}})),
              HasSubstr("column 3"));
  EXPECT_THAT(ErrorOf("digits", Options({{"path", Write("c.csv", "")}})), HasSubstr("at least 5"));
  const std::string too_white = DigitsLines(1).replace(0, 1, "17");
  EXPECT_THAT(ErrorOf("digits", Options({{"path", Write("d.csv", too_white)}})),
              HasSubstr("from 0 to 16"));
}

TEST_F(DatasetTest, DigitsComesFromTheCacheFolder) {
  setenv("STRATA_CACHE", folder_.c_str(), 1);
  EXPECT_THAT(ErrorOf("digits", {}), HasSubstr("data/digits.csv (the UCI digits"));
  Write("data/digits.csv", DigitsLines(10));
  EXPECT_EQ(Open("digits", {})->size(), 8);
  unsetenv("STRATA_CACHE");
}

TEST_F(DatasetTest, Cifar10ReadsAllBatchesAndNormalises) {
  for (int i = 1; i <= 5; ++i) Write(Str("data_batch_", i, ".bin"), Cifar(i));
  Write("test_batch.bin", Cifar(4));
  const auto train = Open("cifar10", Options({{"path", folder_.string()}}));
  const auto test = Open("cifar10", Options({{"path", folder_.string()}, {"split", "test"}}));
  EXPECT_EQ(train->size(), 15);
  EXPECT_EQ(test->size(), 4);
  EXPECT_EQ(Ints(*test, 3, true)[0], 3);
  const std::vector<float> image = Floats(*test, 2);
  ASSERT_EQ(image.size(), 3u * 32 * 32);
  EXPECT_NEAR(image[0], (20 / 255.0 - 0.4914) / 0.2470, 1e-5);
  EXPECT_NEAR(image[1024], (21 / 255.0 - 0.4822) / 0.2435, 1e-5);
}

TEST_F(DatasetTest, Cifar10ResizesToTheJobsInput) {
  std::string record(1, '\3');
  for (int channel = 0; channel < 3; ++channel) {
    for (int place = 0; place < 1024; ++place) record += static_cast<char>(4 * (place % 32));
  }
  Write("test_batch.bin", record);
  context_.input = TensorSpec{{3, 64, 16}, DType::kFloat32};
  const auto test = Open("cifar10", Options({{"path", folder_.string()}, {"split", "test"}}));
  EXPECT_EQ(test->input().ToString(), "float32 (3, 64, 16)");
  const std::vector<float> image = Floats(*test, 0);
  // The image is a ramp of 4 per column. At half the width, column x is the source's 2x + 0.5.
  for (size_t x = 0; x < 16; ++x) {
    const double grey = 4 * (2 * static_cast<double>(x) + 0.5);
    EXPECT_NEAR(image[5 * 16 + x], (grey / 255 - 0.4914) / 0.2470, 1e-4) << x;
  }
}

TEST_F(DatasetTest, Cifar10NamesMissingAndBrokenFiles) {
  EXPECT_THAT(ErrorOf("cifar10", Options({{"path", folder_.string()}})),
              HasSubstr("data_batch_1.bin"));
  Write("test_batch.bin", Cifar(2) + "x");
  const Value test = Options({{"path", folder_.string()}, {"split", "test"}});
  EXPECT_THAT(ErrorOf("cifar10", test), HasSubstr("records of 3073 bytes"));
  Write("test_batch.bin", Cifar(1).replace(0, 1, "\x0b"));
  EXPECT_THAT(ErrorOf("cifar10", test), HasSubstr("label 11"));
}

TEST_F(DatasetTest, Cifar10WithoutAFolderIsSyntheticAndSaysSo) {
  context_.input = TensorSpec{{3, 224, 224}, DType::kFloat32};
  const auto train = Open("cifar10", Options({{"path", ""}}));
  EXPECT_THAT(train->description(), HasSubstr("synthetic"));
  EXPECT_EQ(train->input().ToString(), "float32 (3, 224, 224)");
}

TEST_F(DatasetTest, TextGivesBytesAndTheNextOnes) {
  std::string text;
  for (int i = 0; i < 101; ++i) text += static_cast<char>(i + 100);
  const std::string path = Write("a.txt", text);
  const auto train = Open("text", Options({{"path", path}, {"length", 4}}));
  const auto test = Open("text", Options({{"path", path}, {"length", 4}, {"split", "test"}}));
  EXPECT_EQ(train->size() + test->size(), 25);
  EXPECT_EQ(test->size(), 2);
  EXPECT_EQ(Ints(*train, 0, false), (std::vector<int64_t>{100, 101, 102, 103}));
  EXPECT_EQ(Ints(*train, 0, true), (std::vector<int64_t>{101, 102, 103, 104}));
  EXPECT_EQ(Ints(*test, 0, false)[0], 136) << "piece 9 is held out";
  EXPECT_EQ(Ints(*train, 9, false)[0], 140);
  EXPECT_EQ(Ints(*train, 22, true)[3], 200) << "the last byte is a target";
}

TEST_F(DatasetTest, TextReadsAFolderInTheOrderOfNames) {
  Write("b", "bbbbbbbbbbbbbbbbbbbbbbbb");
  Write("a", "aaaaaaaaaaaaaaaaaaaaaaaa");
  fs::create_symlink(folder_ / "a", folder_ / "0");
  const auto train = Open("text", Options({{"path", folder_.string()}, {"length", 2}}));
  EXPECT_EQ(Ints(*train, 0, false)[0], 'a');
  EXPECT_EQ(Ints(*train, train->size() - 1, false)[0], 'b');
  context_.script_folder = folder_.string();
  EXPECT_EQ(Ints(*Open("text", Options({{"path", "b"}, {"length", 2}})), 0, false)[0], 'b');
}

TEST_F(DatasetTest, TextRefusesTooLittleAndMissingFiles) {
  EXPECT_THAT(ErrorOf("text", Options({{"path", Write("a", "short")}, {"length", 4}})),
              HasSubstr("got 5 bytes"));
  EXPECT_THAT(ErrorOf("text", Options({{"path", (folder_ / "none").string()}, {"length", 4}})),
              HasSubstr("none"));
}

TEST_F(DatasetTest, SyntheticSamplesAreTheSameWhenReadAgain) {
  const Value options =
      Options({{"shape", Value::IntList({2, 3, 8})}, {"classes", 5}, {"samples", 50}, {"seed", 3}});
  const auto a = Open("images", options);
  const auto b = Open("images", options);
  std::set<int64_t> labels;
  for (int64_t i = 0; i < a->size(); ++i) {
    EXPECT_EQ(Floats(*a, i), Floats(*b, i));
    EXPECT_EQ(Ints(*a, i, true), Ints(*b, i, true));
    labels.insert(Ints(*a, i, true)[0]);
  }
  EXPECT_EQ(labels, (std::set<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_NE(Floats(*a, 0), Floats(*a, 1));
}

TEST_F(DatasetTest, SyntheticImagesAreAsDescribed) {
  const auto images = Open("images", Options({{"shape", Value::IntList({1, 100, 100})}}));
  double sum = 0, squares = 0;
  const std::vector<float> image = Floats(*images, 0);
  for (const float value : image) {
    sum += value;
    squares += value * value;
  }
  const double n = static_cast<double>(image.size());
  EXPECT_NEAR(sum / n, 0, 0.05);
  EXPECT_NEAR(squares / n, 1.5, 0.05) << "noise of variance 1 and a sine of variance 1/2";
}

TEST_F(DatasetTest, TokensFollowTheRuleMostOfTheTime) {
  const auto tokens = Open("tokens", Options({{"vocabulary", 1000}, {"length", 500}}));
  const auto input = Ints(*tokens, 7, false);
  const auto target = Ints(*tokens, 7, true);
  int follows = 0;
  for (size_t i = 0; i < input.size(); ++i) {
    EXPECT_GE(input[i], 0);
    EXPECT_LT(input[i], 1000);
    if (i > 0) {
      EXPECT_EQ(input[i], target[i - 1]);
    }
    follows += target[i] == (input[i] * 31 + 17) % 1000;
  }
  EXPECT_GT(follows, 420);
  EXPECT_LT(follows, 480);
}

TEST_F(DatasetTest, SplitsOfSyntheticDataDiffer) {
  const auto train = Open("tokens", Options({{"vocabulary", 1000}, {"length", 32}}));
  const auto test =
      Open("tokens", Options({{"vocabulary", 1000}, {"length", 32}, {"split", "test"}}));
  EXPECT_NE(Ints(*train, 0, false), Ints(*test, 0, false));
}

TEST_F(DatasetTest, UnknownKindAndSplitNameTheNearest) {
  EXPECT_THAT(ErrorOf("digit", {}), HasSubstr("did you mean \"digits\"?"));
  EXPECT_THAT(ErrorOf("tokens", Options({{"split", "valid"}})), HasSubstr("\"train\" or \"test\""));
}

}  // namespace
}  // namespace strata
