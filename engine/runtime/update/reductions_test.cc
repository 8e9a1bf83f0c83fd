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
  // In fp32 the sum would stop to grow at 2^24.
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

TEST(SumOfSquaresTest, AddsInSixteenLanes) {  // whatever the processor: saves rest on the bits
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
    HostFetch fetch;
    ChunkSquares(tensor, whole, fetch);
    ChunkSquares(tensor.narrow(0, 2 * kSquareChunk, kSquareChunk + 17), part, fetch);
    fetch.Fetch();
    EXPECT_EQ(part[0], whole[2]);
    EXPECT_EQ(part[1], whole[3]);
    EXPECT_EQ(SumOfSquares(tensor), whole[0] + whole[1] + whole[2] + whole[3]);
  }
}

TEST(SumOfSquaresTest, TakesOtherTypes) {
  EXPECT_DOUBLE_EQ(SumOfSquares(at::full({3}, 2.0, at::kDouble)), 12);
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
