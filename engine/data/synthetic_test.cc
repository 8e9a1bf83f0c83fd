// Tests that synthetic samples are the same on every machine and in every version. The expected
// numbers were computed independently, in another language, from the description.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "engine/data/testing.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

class Synthetic : public DatasetTest {
 protected:
  std::unique_ptr<Dataset> Tokens(const char* split, int64_t length = 8) {
    return Open("tokens", Options({{"vocabulary", 1000}, {"length", length}, {"split", split}}));
  }
  std::unique_ptr<Dataset> Images(const char* split, std::vector<int64_t> shape) {
    return Open("images", Options({{"shape", Value::IntList(shape)}, {"split", split}}));
  }
};

TEST_F(Synthetic, TokensAreWrittenDown) {
  EXPECT_THAT(Ints(*Tokens("train"), 0, false), ElementsAre(535, 679, 66, 63, 913, 299, 201, 248));
  EXPECT_THAT(Ints(*Tokens("train"), 0, true), ElementsAre(679, 66, 63, 913, 299, 201, 248, 705));
  EXPECT_THAT(Ints(*Tokens("train"), 5, false), ElementsAre(885, 452, 29, 916, 413, 820, 437, 564));
  EXPECT_THAT(Ints(*Tokens("test"), 0, false), ElementsAre(700, 717, 244, 581, 913, 299, 201, 248));
  EXPECT_THAT(Ints(*Tokens("test"), 5, true), ElementsAre(683, 190, 907, 134, 955, 622, 299, 286));
}

TEST_F(Synthetic, ImagesAreWrittenDown) {
  const auto train = Images("train", {4}), test = Images("test", {4});
  std::vector<int64_t> labels, test_labels;
  for (int64_t i = 0; i < 12; ++i) {
    labels.push_back(Ints(*train, i, true)[0]);
    test_labels.push_back(Ints(*test, i, true)[0]);
  }
  EXPECT_THAT(labels, ElementsAre(5, 8, 6, 4, 3, 5, 0, 4, 2, 4, 6, 9));
  EXPECT_THAT(test_labels, ElementsAre(0, 5, 0, 1, 2, 6, 6, 5, 7, 8, 4, 2));
  constexpr float kNear = 1e-5f;
  EXPECT_THAT(Floats(*train, 3),
              ElementsAre(FloatNear(0.5746120f, kNear), FloatNear(1.313959f, kNear),
                          FloatNear(-0.1091964f, kNear), FloatNear(-1.062963f, kNear)));
  EXPECT_THAT(Floats(*test, 3),
              ElementsAre(FloatNear(-0.1220157f, kNear), FloatNear(0.2299021f, kNear),
                          FloatNear(-0.2795246f, kNear), FloatNear(-0.0923072f, kNear)));
}

/// The target must be the input shifted by one token, and a longer sequence must begin like a
/// shorter one.
TEST_F(Synthetic, TokensContinue) {
  const auto shorter = Tokens("train", 5), longer = Tokens("train", 40);
  for (int64_t i = 0; i < 20; ++i) {
    std::vector<int64_t> begin = Ints(*longer, i, false);
    begin.resize(5);
    EXPECT_EQ(Ints(*shorter, i, false), begin);
    std::vector<int64_t> moved = Ints(*longer, i, false);
    moved.erase(moved.begin());
    std::vector<int64_t> target = Ints(*longer, i, true);
    target.pop_back();
    EXPECT_EQ(target, moved);
  }
}

TEST_F(Synthetic, ClassesAreEquallyLikely) {
  const auto images = Open("images", Options({{"shape", Value::IntList({1})}, {"samples", 8000}}));
  std::map<int64_t, int> counts;
  for (int64_t i = 0; i < images->size(); ++i) ++counts[Ints(*images, i, true)[0]];
  ASSERT_EQ(counts.size(), 10u);
  // Five standard deviations of a fair draw; the numbers are the same in every run.
  for (const auto& [label, count] : counts) EXPECT_NEAR(count, 800, 5 * std::sqrt(720)) << label;
}

/// The class can be learned: the mean of the images of one class is its wave.
TEST_F(Synthetic, TheWaveTellsTheClass) {
  constexpr size_t kWidth = 16;
  const auto images = Images("train", {kWidth});
  std::map<int64_t, std::vector<double>> sums;
  std::map<int64_t, int> counts;
  for (int64_t i = 0; i < images->size(); ++i) {
    const int64_t label = Ints(*images, i, true)[0];
    std::vector<double>& sum = sums[label];
    sum.resize(kWidth);
    const std::vector<float> image = Floats(*images, i);
    for (size_t x = 0; x < kWidth; ++x) sum[x] += image[x];
    ++counts[label];
  }
  for (const auto& [label, sum] : sums) {
    const double n = counts[label];
    for (size_t x = 0; x < kWidth; ++x) {
      const double turns = static_cast<double>(x) / kWidth * static_cast<double>(label + 1);
      EXPECT_NEAR(sum[x] / n, std::sin(2 * M_PI * turns), 5 / std::sqrt(n)) << label << " " << x;
    }
  }
}

TEST_F(Synthetic, ASingleNumberIsAnImage) {
  const auto scalars = Images("train", {});
  EXPECT_EQ(scalars->input().ToString(), "float32 ()");
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_LE(std::abs(Floats(*scalars, i)[0]), std::sqrt(3.0) + 1e-6) << "noise of variance 1";
  }
}

TEST_F(Synthetic, ImagesFollowTheJobsInput) {
  context_.input = TensorSpec{{3, 5, 7}, DType::kFloat32};
  EXPECT_EQ(Open("images", Value::MakeMap())->input(), *context_.input);
  context_.input.reset();
  EXPECT_EQ(Open("images", Value::MakeMap())->input().ToString(), "float32 (3, 32, 32)");
}

}  // namespace
}  // namespace strata
