// Compares the resized images of CIFAR-10 with a plain bilinear resize that follows the definition
// of PyTorch's interpolate(mode="bilinear", align_corners=False).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "engine/data/testing.h"

namespace strata {
namespace {

constexpr std::array<double, 3> kMean = {0.4914, 0.4822, 0.4465};
constexpr std::array<double, 3> kDeviation = {0.2470, 0.2435, 0.2616};

/// A record with random pixels and the label 1.
std::string RandomRecord(unsigned seed) {
  std::mt19937 random(seed);
  std::string record(1, '\1');
  for (int i = 0; i < 3 * 1024; ++i) record += static_cast<char>(random());
  return record;
}

double Pixel(const std::string& record, int channel, int y, int x) {
  const auto at = static_cast<size_t>(1 + channel * 1024 + y * 32 + x);
  return static_cast<uint8_t>(record[at]) / 255.0;
}

/// The position of output pixel `i` of `size` in the source, clamped to the centres of the first
/// and the last pixel.
double Place(int64_t i, int64_t size) {
  const double place = (static_cast<double>(i) + 0.5) * 32 / static_cast<double>(size) - 0.5;
  return std::clamp(place, 0.0, 31.0);
}

/// The hat function's weight of pixel `p` at `place`.
double Hat(double place, int p) { return std::max(0.0, 1 - std::abs(place - p)); }

double Resized(const std::string& record, int channel, double y, double x) {
  double sum = 0;
  for (int row = 0; row < 32; ++row) {
    if (Hat(y, row) == 0) continue;
    for (int column = 0; column < 32; ++column) {
      sum += Hat(y, row) * Hat(x, column) * Pixel(record, channel, row, column);
    }
  }
  return sum;
}

class Cifar10Test : public DatasetTest {
 protected:
  void ExpectResized(int64_t height, int64_t width) {
    SCOPED_TRACE(Str(height, " x ", width));
    const std::string record = RandomRecord(static_cast<unsigned>(height * 1000 + width));
    Write("test_batch.bin", record);
    context_.input = TensorSpec{{3, height, width}, DType::kFloat32};
    const auto images = Open("cifar10", Options({{"path", folder_.string()}, {"split", "test"}}));
    const std::vector<float> image = Floats(*images, 0);
    size_t at = 0;
    for (size_t channel = 0; channel < 3; ++channel) {
      for (int64_t y = 0; y < height; ++y) {
        for (int64_t x = 0; x < width; ++x) {
          const double grey =
              Resized(record, static_cast<int>(channel), Place(y, height), Place(x, width));
          ASSERT_NEAR(image[at++], (grey - kMean[channel]) / kDeviation[channel], 1e-4)
              << channel << " " << y << " " << x;
        }
      }
    }
    EXPECT_EQ(at, image.size());
  }
};

TEST_F(Cifar10Test, KeepsItsOwnSize) { ExpectResized(32, 32); }

TEST_F(Cifar10Test, IsResizedAsPyTorchDoes) {
  for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {1, 32}, {31, 33}, {64, 16}, {7, 50}, {48, 5}, {2, 63}}) {
    ExpectResized(height, width);
  }
}

TEST_F(Cifar10Test, TheOptionHoldsOverTheJobsInput) {
  Write("test_batch.bin", Cifar(1));
  context_.input = TensorSpec{{3, 64, 16}, DType::kFloat32};
  const Value options = Options({{"path", folder_.string()}, {"split", "test"}, {"size", 9}});
  EXPECT_EQ(Open("cifar10", options)->input().ToString(), "float32 (3, 9, 9)");
}

TEST_F(Cifar10Test, AnImageOfOneColourStaysSo) {
  Write("test_batch.bin", Cifar(10));
  for (int64_t size : {1, 8, 31, 45}) {
    const auto images =
        Open("cifar10", Options({{"path", folder_.string()}, {"split", "test"}, {"size", size}}));
    for (int64_t i = 0; i < images->size(); ++i) {
      const std::vector<float> image = Floats(*images, i);
      const double expected =
          ((10.0 * static_cast<double>(i) + 1) / 255 - kMean[1]) / kDeviation[1];
      const auto plane = static_cast<int64_t>(image.size()) / 3;
      for (int64_t p = plane; p < 2 * plane; ++p) {
        ASSERT_NEAR(image[static_cast<size_t>(p)], expected, 1e-5) << i << " " << size;
      }
      EXPECT_EQ(Ints(*images, i, true)[0], i);
    }
  }
}

}  // namespace
}  // namespace strata
