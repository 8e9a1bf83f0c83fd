#include "engine/layers/kernels/product.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/layers/kernels/avx512.h"
#include "engine/layers/kernels/half_product.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::MaxDifference;
using testing::Normal;
using testing::SameBits;

/// The same matrix, stored column by column.
at::Tensor ByColumns(const at::Tensor& matrix) { return matrix.t().contiguous().t(); }

class ProductTest : public ::testing::Test {
 protected:
  const at::NoGradGuard no_grad_;
};

class OneDnnTest : public ProductTest {
 protected:
  void SetUp() override {
    if (!HasAvx512()) GTEST_SKIP() << "no AVX-512 here, which LibTorch's oneDNN products need";
  }
};

TEST_F(OneDnnTest, ByOneDnnEqualsProductsInDouble) {
  const products::WithOneDnn with_onednn;
  const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
  for (const auto& [m, k, n] :
       {std::tuple(1, 1, 1), {5, 1, 3}, {1, 70, 2}, {50, 64, 48}, {130, 33, 257}}) {
    const at::Tensor a = Normal({m, k}, 1), b = Normal({k, n}, 2), bias = Normal({n}, 3);
    const at::Tensor product = wide(a).mm(wide(b));
    for (const at::Tensor& left : {a, ByColumns(a)}) {
      for (const at::Tensor& right : {b, ByColumns(b)}) {
        ASSERT_TRUE(products::UsesOneDnn(left, right));
        EXPECT_LT(MaxDifference(products::Product(left, right), product), 3e-5);
        const at::Tensor sum = Normal({m, n}, 4), more = wide(sum) + product;
        products::Add(sum, left, right, /*overwrites=*/false);
        EXPECT_LT(MaxDifference(sum, more), 3e-5);
        sum.fill_(std::numeric_limits<float>::quiet_NaN());
        products::Add(sum, left, right, /*overwrites=*/true);
        EXPECT_LT(MaxDifference(sum, product), 3e-5);
      }
      const at::Tensor weight = b.t().contiguous();
      EXPECT_LT(MaxDifference(products::TimesTransposed(left, weight, bias), product + bias), 3e-5);
      EXPECT_LT(MaxDifference(products::TimesTransposed(left, weight, std::nullopt), product),
                3e-5);
    }
  }
}

TEST_F(OneDnnTest, OverwritingHasTheBitsOfAddingToZeros) {
  const products::WithOneDnn with_onednn;
  const at::Tensor a = Normal({150, 70}, 1), b = Normal({70, 130}, 2);
  const at::Tensor zeros = at::zeros({150, 130}), unset = at::full({150, 130}, 7.0);
  products::Add(zeros, a, b, /*overwrites=*/false);
  products::Add(unset, a, b, /*overwrites=*/true);
  EXPECT_TRUE(SameBits(zeros, unset));
}

TEST_F(ProductTest, OthersAreATens) {
  const products::WithOneDnn with_onednn;
  const at::Tensor a = Normal({64, 48}, 1), b = Normal({48, 64}, 2);
  const at::Tensor part = Normal({64, 96}, 3).slice(1, 0, 96, 2);  // every other column
  EXPECT_FALSE(products::UsesOneDnn(part, b));
  EXPECT_TRUE(SameBits(products::Product(part, b), part.mm(b)));
  for (const at::ScalarType type : {at::kDouble, at::kBFloat16}) {
    EXPECT_FALSE(products::UsesOneDnn(a.to(type), b.to(type)));
  }
  EXPECT_FALSE(products::UsesOneDnn(a.narrow(0, 0, 0), b));
  const at::Tensor all = at::zeros({64, 70}), sum = all.narrow(1, 3, 64);
  products::Add(sum, a, b, /*overwrites=*/false);
  EXPECT_TRUE(SameBits(sum, a.mm(b)));
  EXPECT_EQ(all.narrow(1, 0, 3).abs().sum().item<float>(), 0);
  const at::AutoGradMode with_grad(true);
  EXPECT_FALSE(products::UsesOneDnn(a, b));
}

TEST_F(ProductTest, OneDnnNeedsAvx512AndEnoughToDo) {
  const at::Tensor large = Normal({128, 128}, 1), small = Normal({64, 64}, 2);
  const bool is_intel = __builtin_cpu_is("intel");
  EXPECT_EQ(products::UsesOneDnn(large, large), HasAvx512() && !is_intel);
  EXPECT_FALSE(products::UsesOneDnn(small, small));
  const WithoutAvx512 without;
  EXPECT_FALSE(products::UsesOneDnn(large, large));
}

// Without AVX-512 LibTorch's mkldnn_matmul() throws, also in float32.
TEST_F(ProductTest, WithoutAvx512NoPathLeadsToOneDnn) {
  const WithoutAvx512 without;
  const products::WithOneDnn with_onednn;
  const at::Tensor a = Normal({150, 70}, 1), b = Normal({70, 130}, 2), sum = at::zeros({150, 130});
  EXPECT_FALSE(products::UsesOneDnn(a, b));
  EXPECT_TRUE(SameBits(products::Product(a, b), a.mm(b)));
  products::Add(sum, a, b, /*overwrites=*/true);
  EXPECT_TRUE(SameBits(sum, a.mm(b)));
  EXPECT_DEATH(products::TimesTransposed(a, b.t(), std::nullopt), "SuitsOneDnn");
}

TEST_F(ProductTest, SlowHalfPrecisionIsComputedInFloat32AndRoundedOnce) {
  products::RegisterHalfProducts();
  const WithoutAvx512 without_avx512;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    ASSERT_TRUE(half_products::IsSlow(type));
    const auto half = [&](at::IntArrayRef sizes, int seed) { return Normal(sizes, seed).to(type); };
    const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
    const auto expect = [&](const at::Tensor& result, const at::Tensor& exact) {
      ASSERT_EQ(result.scalar_type(), type);
      const at::Tensor rounded = exact.to(at::kFloat).to(type);
      // Sums in float32 may lie on the other side of a rounding limit.
      const auto differ = result.ne(rounded).sum().item<int64_t>();
      EXPECT_LE(differ, 1 + result.numel() / 20) << result.sizes();
      EXPECT_TRUE(at::allclose(wide(result), exact, 0x1p-7, 1e-2)) << result.sizes();
    };
    // Sizes around those of a block, of none, and of one.
    for (const auto& [m, k, n] :
         {std::tuple(1, 1, 1), {3, 0, 2}, {5, 70, 2}, {513, 64, 48}, {40, 1030, 600}}) {
      const at::Tensor a = half({m, k}, 1), b = half({k, n}, 2), bias = half({n}, 3);
      const at::Tensor product = wide(a).mm(wide(b));
      for (const at::Tensor& left : {a, ByColumns(a)}) {
        for (const at::Tensor& right : {b, ByColumns(b)}) {
          expect(left.mm(right), product);
          expect(at::addmm(bias, left, right, 0.5, 2), wide(bias) * 0.5 + product * 2);
        }
      }
      at::Tensor sum = half({m, n}, 4);
      const at::Tensor more = wide(sum) + product;
      products::Add(sum, a, b, /*overwrites=*/false);
      expect(sum, more);
      products::Add(sum.fill_(NAN), a, b, /*overwrites=*/true);
      expect(sum, product);
    }
    for (const auto& [count, m, k, n] :
         {std::tuple(0, 2, 3, 4), {7, 5, 6, 3}, {300, 32, 64, 32}, {2, 700, 40, 800}}) {
      const at::Tensor a = half({count, m, k}, 1), b = half({count, k, n}, 2);
      const at::Tensor sum = half({count, 1, n}, 3);
      const at::Tensor product = wide(a).bmm(wide(b));
      expect(a.bmm(b), product);
      expect(at::baddbmm(sum, a, b), wide(sum) + product);
    }
    EXPECT_THROW(half({2, 3}, 1).mm(half({2, 3}, 1)), c10::Error);
    EXPECT_THROW(half({2, 3}, 1).mm(Normal({3, 2}, 1)), c10::Error) << "of another type";
    at::Tensor wrong = half({2, 2}, 1);
    EXPECT_THROW(wrong.addmm_(half({2, 3}, 1), half({3, 4}, 1)), c10::Error);
  }
}

}  // namespace
}  // namespace strata
