// Tests the Winograd convolutions against ATen's convolution in double.
#include "engine/layers/kernels/winograd.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "engine/layers/kernels/avx512.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::Normal;
using testing::SameBits;

/// The size of a batch, the channels of its convolution, and the size of its images.
struct Case {
  int64_t images, inputs, outputs, height, width;
};

/// The cases have even and odd sizes, rows of tiles longer and shorter than a register, more tiles
/// than are transformed at a time (within one image and in several), and more outputs than are
/// computed at a time.
constexpr Case kCases[] = {{8, 48, 64, 4, 4},   {2, 64, 48, 16, 16},  {3, 48, 80, 7, 13},
                           {1, 48, 48, 11, 66}, {2, 48, 48, 50, 37},  {9, 64, 48, 16, 16},
                           {8, 400, 112, 5, 5}, {2, 48, 400, 12, 10}, {1, 64, 64, 2, 70},
                           {1, 48, 48, 1, 1200}};

class WinogradTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasAvx512()) GTEST_SKIP() << "no AVX-512 here";
  }
  const at::NoGradGuard no_grad_;
};

struct Tensors {
  explicit Tensors(const Case& c)
      : x(Normal({c.images, c.inputs, c.height, c.width}, 1)),
        weight(Normal({c.outputs, c.inputs, 3, 3}, 2)),
        bias(Normal({c.outputs}, 3)),
        dy(Normal({c.images, c.outputs, c.height, c.width}, 4)) {}

  at::Tensor x, weight, bias, dy;
};

std::tuple<at::Tensor, at::Tensor, at::Tensor> ATensGradients(const Tensors& t, at::ScalarType as) {
  return at::convolution_backward(t.dy.to(as), t.x.to(as), t.weight.to(as), std::nullopt, {1, 1},
                                  {1, 1}, {1, 1}, false, {0, 0}, 1, {true, true, false});
}

/// The relative error |actual - exact| / |exact|.
double Error(const at::Tensor& actual, const at::Tensor& exact) {
  EXPECT_EQ(actual.sizes(), exact.sizes());
  return ((actual.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

TEST_F(WinogradTest, EqualsConvolutionsInDouble) {
  constexpr double kTolerance = 2e-6;
  for (const Case& c : kCases) {
    const Tensors t(c);
    SCOPED_TRACE(::testing::Message() << t.x.sizes() << " to " << c.outputs);
    if (c.height == 1) {  // half of each tile is outside
      EXPECT_FALSE(winograd::Computes(t.x, t.weight));
      continue;
    }
    ASSERT_TRUE(winograd::Computes(t.x, t.weight));
    const at::Tensor x = t.x.to(at::kDouble), weight = t.weight.to(at::kDouble);
    const at::Tensor y = at::conv2d(x, weight, {}, 1, 1);
    EXPECT_LT(Error(winograd::Convolve(t.x, t.weight, std::nullopt), y), kTolerance);
    EXPECT_LT(Error(winograd::Convolve(t.x, t.weight, t.bias),
                    y + t.bias.to(at::kDouble).view({1, -1, 1, 1})),
              kTolerance);
    const auto [dx, dweight, _] = ATensGradients(t, at::kDouble);
    EXPECT_LT(Error(winograd::InputGradient(t.dy, t.weight), dx), kTolerance);
    const at::Tensor sum = Normal(t.weight.sizes(), 5), before = sum.to(at::kDouble);
    winograd::AddWeightGradient(sum, t.dy, t.x, /*overwrites=*/false);
    EXPECT_LT(Error(sum, before + dweight), kTolerance);
    sum.fill_(std::numeric_limits<float>::quiet_NaN());
    winograd::AddWeightGradient(sum, t.dy, t.x, /*overwrites=*/true);
    EXPECT_LT(Error(sum, dweight), kTolerance);
  }
}

TEST_F(WinogradTest, BitsDependOnNoThreads) {
  for (const Case& c : {Case{9, 64, 112, 16, 16}, Case{2, 400, 64, 8, 8}}) {
    const Tensors t(c);
    const auto results = [&t](int threads) {
      at::set_num_threads(threads);
      at::Tensor dweight = at::empty_like(t.weight);
      winograd::AddWeightGradient(dweight, t.dy, t.x, /*overwrites=*/true);
      return std::vector<at::Tensor>{winograd::Convolve(t.x, t.weight, t.bias),
                                     winograd::InputGradient(t.dy, t.weight), dweight};
    };
    const std::vector<at::Tensor> one = results(1), three = results(3);
    at::set_num_threads(1);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(SameBits(one[i], three[i])) << i;
  }
}

TEST_F(WinogradTest, TakesGradientsThatAreNotContiguous) {
  const Tensors t({4, 48, 48, 8, 8});
  const at::Tensor dy = t.dy.transpose(2, 3), plain = dy.contiguous();
  EXPECT_TRUE(
      SameBits(winograd::InputGradient(dy, t.weight), winograd::InputGradient(plain, t.weight)));
  at::Tensor a = at::zeros_like(t.weight), b = at::zeros_like(t.weight);
  winograd::AddWeightGradient(a, dy, t.x, /*overwrites=*/true);
  winograd::AddWeightGradient(b, plain, t.x, /*overwrites=*/true);
  EXPECT_TRUE(SameBits(a, b));
}

TEST_F(WinogradTest, LeavesOthersToATen) {
  const auto computes = [](at::IntArrayRef x, at::IntArrayRef weight) {
    return winograd::Computes(at::zeros(x), at::zeros(weight));
  };
  EXPECT_TRUE(computes({2, 48, 8, 8}, {48, 48, 3, 3}));
  EXPECT_FALSE(computes({2, 32, 8, 8}, {48, 32, 3, 3})) << "few channels";
  EXPECT_FALSE(computes({2, 48, 8, 8}, {32, 48, 3, 3})) << "few channels";
  EXPECT_FALSE(computes({2, 50, 8, 8}, {48, 50, 3, 3})) << "channels that fill no registers";
  EXPECT_FALSE(computes({2, 48, 8, 8}, {50, 48, 3, 3})) << "channels that fill no registers";
  EXPECT_FALSE(computes({1, 48, 8, 8}, {48, 48, 3, 3})) << "few tiles";
  EXPECT_FALSE(computes({8, 48, 3, 3}, {48, 48, 3, 3})) << "tiles that lie half outside";
  EXPECT_FALSE(computes({2, 48, 8, 8}, {48, 48, 5, 5})) << "a larger window";
  EXPECT_FALSE(computes({2, 48, 8, 8}, {48, 48, 3, 1})) << "a narrower window";
  const at::Tensor x = at::zeros({2, 48, 8, 8}), weight = at::zeros({48, 48, 3, 3});
  EXPECT_FALSE(winograd::Computes(x.to(at::kDouble), weight.to(at::kDouble)));
  EXPECT_FALSE(winograd::Computes(x.transpose(2, 3), weight));
  {
    const at::AutoGradMode recording(true);
    EXPECT_FALSE(winograd::Computes(x, weight));
  }
  const WithoutAvx512 plain;
  EXPECT_FALSE(winograd::Computes(x, weight));
}

}  // namespace
}  // namespace strata
