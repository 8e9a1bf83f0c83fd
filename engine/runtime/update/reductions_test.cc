#include "engine/runtime/update/reductions.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

at::Tensor Waves(int64_t count) { return at::arange(count, at::kFloat).mul_(0.37).sin_(); }

TEST(SumOfSquaresTest, IsExactToDouble) {
  for (const int64_t count : {0, 1, 15, 16, 17, 1000, 300'000}) {
    const at::Tensor values = Waves(count);
    const double expected = values.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(SumOfSquares(values), expected, 1e-12 * expected) << count;
  }
  // In fp32 the sum would stop growing at 2^24.
  EXPECT_EQ(SumOfSquares(at::full({20'000'000}, 1.0f)), 2e7);
}

TEST(SumOfSquaresTest, BitsDoNotDependOnThreads) {
  const at::Tensor values = Waves(1'000'003);
  at::set_num_threads(1);
  const double one = SumOfSquares(values);
  at::set_num_threads(3);
  const double three = SumOfSquares(values);
  at::set_num_threads(1);
  EXPECT_EQ(one, three);
}

// On every processor, because saves rely on the bits.
TEST(SumOfSquaresTest, AddsInSixteenLanes) {
  const at::Tensor values = Waves(37);
  const float* v = values.const_data_ptr<float>();
  const auto square = [&](int i) { return static_cast<double>(v[i]) * v[i]; };
  double sum = 0;
  for (int lane = 0; lane < 16; ++lane) sum += square(lane) + square(lane + 16);
  for (int i = 32; i < 37; ++i) sum += square(i);
  EXPECT_EQ(SumOfSquares(values), sum);
}

TEST(ChunkSquaresTest, PartsOfATensorHaveTheBitsOfTheWhole) {
  const at::Tensor values = Waves(3 * kSquareChunk + 17);
  for (const at::Tensor& tensor : {values, values.to(at::kDouble)}) {
    std::vector<double> whole(4), part(2);
    ChunkSquares(tensor, whole);
    ChunkSquares(tensor.narrow(0, 2 * kSquareChunk, kSquareChunk + 17), part);
    EXPECT_EQ(part[0], whole[2]);
    EXPECT_EQ(part[1], whole[3]);
    EXPECT_EQ(SumOfSquares(tensor), whole[0] + whole[1] + whole[2] + whole[3]);
  }
}

/// Three gradients of a buffer, with padding after the first; one that is too far away to join
/// them; and one in other memory.
std::vector<GradientSquares::Part> Parts(const at::Tensor& buffer, const at::Tensor& other) {
  return {{buffer.narrow(0, 0, 20), 7},
          {buffer.narrow(0, 32, kSquareChunk + 16), 3},
          {buffer.narrow(0, 32 + kSquareChunk + 16, 16), 1},
          {buffer.narrow(0, 2 * kSquareChunk, 48), 0},
          {other.narrow(0, 2 * kSquareChunk + 48, 16), 5}};
}

TEST(GradientSquaresTest, EachChunkHasItsPlaceWhereverItLies) {
  // The second type as on an accelerator.
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor buffer = Waves(3 * kSquareChunk).to(type), other = buffer.mul(2);
    std::vector<double> squares(9, -1);
    HostFetch fetch;
    GradientSquares of(Parts(buffer, other));
    of.Take(squares, fetch);
    fetch.Fetch();
    const auto sum = [](const at::Tensor& x) { return SumOfSquares(x); };
    const std::vector<double> expected = {sum(buffer.narrow(0, 2 * kSquareChunk, 48)),
                                          sum(buffer.narrow(0, 32 + kSquareChunk + 16, 16)),
                                          -1,
                                          sum(buffer.narrow(0, 32, kSquareChunk)),
                                          sum(buffer.narrow(0, 32 + kSquareChunk, 16)),
                                          sum(other.narrow(0, 2 * kSquareChunk + 48, 16)),
                                          -1,
                                          sum(buffer.narrow(0, 0, 20)),
                                          -1};
    EXPECT_EQ(squares, expected);
  }
}

TEST(GradientSquaresTest, WhatLiesOneBehindTheOtherIsSummedAtOnce) {
  const at::Tensor buffer = Waves(3 * kSquareChunk).to(at::kDouble);
  std::vector<GradientSquares::Part> parts = Parts(buffer, buffer.mul(2));
  for (const bool shuffled : {false, true}) {
    if (shuffled) std::swap(parts[1], parts[4]);  // buffer, other, buffer, buffer, buffer
    const GradientSquares of(parts);
    ASSERT_EQ(of.runs().size(), 3u);  // the fourth is too far away, the fifth in other memory
    EXPECT_EQ(of.runs()[0].elements.numel(), 32 + kSquareChunk + 32);
    EXPECT_EQ(of.runs()[0].places,
              (std::vector<int64_t>{7, GradientSquares::Run::kPadding, 3, 4, 1}));
  }
  // Summed in lanes instead.
  EXPECT_EQ(GradientSquares({{buffer.to(at::kFloat), 0}}).runs().size(), 0u);
}

TEST(GradientSquaresTest, LargeBuffersAreSummedInSeveralRuns) {
  const int64_t size = GradientSquares::kMostOnHost + kSquareChunk;
  const at::Tensor buffer = at::zeros({size}, at::kDouble);
  EXPECT_EQ(GradientSquares({{buffer, 0}}).runs().size(), 2u);
  EXPECT_EQ(GradientSquares({{buffer.narrow(0, 0, size - kSquareChunk), 0}}).runs().size(), 1u);
}

TEST(SumOfSquaresTest, TakesOtherTypes) {
  EXPECT_DOUBLE_EQ(SumOfSquares(at::full({3}, 2.0, at::kDouble)), 12);
  const at::Tensor half = Waves(100'001).to(at::kBFloat16);
  EXPECT_EQ(SumOfSquares(half), SumOfSquares(half.to(at::kFloat)));
}

TEST(BitDigestTest, SeesEveryBit) {
  at::Tensor a = at::zeros({100});
  const std::string digest = BitDigest(a);
  EXPECT_EQ(digest.size(), 16u);
  EXPECT_EQ(BitDigest(at::zeros({100})), digest);
  a[99].fill_(-0.0f);
  EXPECT_NE(BitDigest(a), digest);
}

TEST(BitDigestTest, LooksAtValuesNotAtStrides) {
  const at::Tensor a = Waves(6).view({2, 3});
  EXPECT_EQ(BitDigest(a.t()), BitDigest(a.t().contiguous()));
  EXPECT_NE(BitDigest(a.t()), BitDigest(a));
}

}  // namespace
}  // namespace strata
