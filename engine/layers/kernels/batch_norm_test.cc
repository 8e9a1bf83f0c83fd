// Tests BatchNormByBatch() against ATen's batch norm of the same numbers.
#include "engine/layers/kernels/batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "engine/layers/kernels/avx512.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::MaxDifference;
using testing::Normal;
using testing::SameBits;

constexpr double kEps = 1e-5, kMomentum = 0.3;

/// y, running mean and variance, and the gradients of x, weight and bias.
using Results = std::vector<at::Tensor>;

template <class Norm>
Results ResultsOf(const at::Tensor& values, bool is_affine, const Norm& norm) {
  const int64_t channels = values.size(1);
  const at::Tensor x = values.detach().requires_grad_();
  std::optional<at::Tensor> weight, bias;
  if (is_affine) weight = Normal({channels}, 2).requires_grad_();
  if (is_affine) bias = Normal({channels}, 3).requires_grad_();
  const at::Tensor mean = Normal({channels}, 4), variance = Normal({channels}, 5).abs();
  const at::Tensor y = norm(x, weight, bias, mean, variance);
  y.backward(Normal(y.sizes(), 6));
  Results results = {y.detach(), mean, variance, x.grad()};
  if (is_affine) results.insert(results.end(), {weight->grad(), bias->grad()});
  return results;
}

Results Ours(const at::Tensor& x, bool is_affine) {
  return ResultsOf(x, is_affine,
                   [](const at::Tensor& x, const auto& weight, const auto& bias,
                      const at::Tensor& mean, const at::Tensor& variance) {
                     return BatchNormByBatch(x, weight, bias, {mean, variance, kMomentum}, kEps);
                   });
}

Results ATens(const at::Tensor& x, bool is_affine) {
  return ResultsOf(x, is_affine,
                   [](const at::Tensor& x, const auto& weight, const auto& bias,
                      const at::Tensor& mean, const at::Tensor& variance) {
                     return at::batch_norm(x, weight, bias, mean, variance, /*training=*/true,
                                           kMomentum, kEps,
                                           /*cudnn_enabled=*/false);
                   });
}

// Tests that compare the bits of the CPU with those of an accelerator rely on this.
TEST(BatchNormByBatch, IsATensWithoutAvx2) {
  const WithoutAvx2 plain;
  const at::Tensor x = Normal({8, 3, 16, 16}, 1);
  const Results ours = Ours(x, true), theirs = ATens(x, true);
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(SameBits(ours[i], theirs[i])) << i;
}

TEST(BatchNormByBatch, HasATensNumbers) {
  const std::vector<std::vector<int64_t>> shapes = {
      {8, 3, 16, 16}, {1, 5, 3, 3}, {4, 64, 4, 4}, {2, 7, 37}, {3, 2, 2, 5, 7}};
  for (const std::vector<int64_t>& shape : shapes) {
    for (const bool is_affine : {false, true}) {
      const at::Tensor x = Normal(shape, 1) * 3 + 10;  // a mean far from 0
      const Results ours = Ours(x, is_affine), theirs = ATens(x, is_affine);
      ASSERT_EQ(ours.size(), theirs.size());
      for (size_t i = 0; i < ours.size(); ++i) {
        EXPECT_LE(MaxDifference(ours[i], theirs[i]), 3e-6 * theirs[i].abs().max().item<double>())
            << "result " << i << " of " << x.sizes();
      }
    }
  }
}

TEST(BatchNormByBatch, OthersAreATens) {
  const at::Tensor x = Normal({4, 3, 8, 8}, 1);
  for (const at::Tensor& other : {x.to(at::kDouble), x.contiguous(at::MemoryFormat::ChannelsLast),
                                  x.narrow(3, 0, 4), Normal({5, 3}, 1), Normal({2, 3, 2, 2}, 1)}) {
    const auto norm = [](const auto& of, const at::Tensor& x) {
      const at::Tensor mean = at::zeros({3}, x.options());
      return of(x, mean, at::ones_like(mean));
    };
    const auto ours = [](const at::Tensor& x, const at::Tensor& mean, const at::Tensor& variance) {
      return BatchNormByBatch(x, {}, {}, {mean, variance, kMomentum}, kEps);
    };
    const auto atens = [](const at::Tensor& x, const at::Tensor& mean, const at::Tensor& variance) {
      return at::batch_norm(x, {}, {}, mean, variance, true, kMomentum, kEps, false);
    };
    EXPECT_TRUE(SameBits(norm(ours, other), norm(atens, other))) << other.sizes();
  }
}

TEST(BatchNormByBatch, ThreadsChangeNoBits) {
  const at::Tensor x = Normal({4, 33, 9, 9}, 1);
  const Results one = Ours(x, true);
  at::set_num_threads(3);
  const Results three = Ours(x, true);
  at::set_num_threads(1);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(SameBits(one[i], three[i])) << i;
}

TEST(BatchNormByBatch, WhatIsNotFiniteStaysInItsChannel) {
  const at::Tensor x = Normal({2, 2, 4, 4}, 1);
  x[1][0][2][2] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor y = BatchNormByBatch(x, {}, {}, {}, kEps);
  EXPECT_TRUE(y.select(1, 0).isnan().all().item<bool>());
  EXPECT_TRUE(y.select(1, 1).isfinite().all().item<bool>());
}

}  // namespace
}  // namespace strata
