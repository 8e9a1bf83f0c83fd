#include "engine/layers/kernels/row_product.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "engine/layers/testing.h"
#include "engine/tensors/allocator.h"

namespace strata {
namespace {

using testing::MaxDifference;
using testing::SameBits;

/// Gradients of a weight (out, in) and its bias.
struct Gradients {
  at::Tensor weight, bias;

  Gradients(int64_t out, int64_t in) : weight(at::zeros({out, in})), bias(at::zeros({out})) {}
  RowProduct Of(int64_t rows, double phase) const {
    const auto wave = [&](int64_t columns) {
      return at::arange(rows * columns, at::kFloat)
          .mul(0.37)
          .add(phase)
          .sin()
          .view({rows, columns});
    };
    return {wave(weight.size(0)), wave(weight.size(1)), weight, bias};
  }
};

TEST(RowProduct, IsTheGradientOfALinear) {
  const Gradients gradients(3, 2);
  const RowProduct product = gradients.Of(4, 0.5);
  product.Add();
  product.Add();
  EXPECT_LT(MaxDifference(gradients.weight, product.dy.t().mm(product.x).mul(2)), 1e-6);
  EXPECT_LT(MaxDifference(gradients.bias, product.dy.sum(0).mul(2)), 1e-6);
}

/// A gradient that nobody made zero since the step before.
Gradients Unset(int64_t out, int64_t in) {
  Gradients gradients(out, in);
  gradients.weight.fill_(std::numeric_limits<float>::quiet_NaN());
  return gradients;
}

/// -0 where adding to 0 gives 0.
TEST(StaleGradients, AreOverwrittenOnceWithWhatAddingToZerosGives) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t rows : {1, 8, 50}) {
      const Gradients zeros(64, 48), unset = Unset(64, 48);
      const auto stale = std::make_shared<StaleGradients>();
      stale->Mark(unset.weight);
      for (int m = 0; m < 3; ++m) {
        for (const Gradients* gradients : {&zeros, &unset}) {
          RowProduct product = gradients->Of(rows, m);
          product.dy = product.dy.to(type);
          product.x = product.x.to(type);
          if (gradients == &unset) product.stale = stale;
          product.Add();
        }
        EXPECT_TRUE(at::equal(zeros.weight, unset.weight)) << rows << " rows, product " << m;
      }
      EXPECT_FALSE(stale->Take(unset.weight));
    }
  }
}

TEST(StaleGradients, OfWhichAPartComesFirstAreMadeZero) {
  const Gradients zeros(6, 5), unset = Unset(6, 5);
  const auto stale = std::make_shared<StaleGradients>();
  stale->Mark(unset.weight);
  for (const int64_t begin : {4, 0}) {  // rows of a projection of several
    for (const Gradients* gradients : {&zeros, &unset}) {
      RowProduct product = gradients->Of(3, 1);
      product.dy = product.dy.narrow(1, begin, 2);
      product.dweight = gradients->weight.narrow(0, begin, 2);
      product.dbias.reset();
      if (gradients == &unset) product.stale = stale;
      product.Add();
    }
  }
  EXPECT_TRUE(at::equal(zeros.weight, unset.weight));
}

TEST(StaleGradients, KnowWhereEachEnds) {
  const at::Tensor all = at::ones({30});
  StaleGradients stale;
  stale.Mark(all.narrow(0, 10, 10));
  EXPECT_FALSE(stale.Take(all.narrow(0, 0, 10)));
  EXPECT_FALSE(stale.Take(all.narrow(0, 20, 10)));
  EXPECT_TRUE(stale.Take(all.narrow(0, 10, 10)));
  EXPECT_FALSE(stale.Take(all.narrow(0, 10, 10)));
  EXPECT_TRUE(all.eq(1).all().item<bool>());
}

TEST(JoinedProducts, AddTheSameWithin1e6) {
  const Gradients apart(64, 48), together(64, 48);
  JoinedProducts joined;
  for (int m = 0; m < 5; ++m) {
    apart.Of(8 - m, m).Add();  // micro-batches may have different numbers of rows
    joined.Keep(together.Of(8 - m, m));
  }
  EXPECT_EQ(joined.kept(), 5u);
  EXPECT_EQ(together.weight.abs().sum().item<float>(), 0) << "nothing is added before Run()";
  joined.Run();
  EXPECT_EQ(joined.kept(), 0u);
  const auto near = [](const at::Tensor& a, const at::Tensor& b) {
    return MaxDifference(a, b) <= 1e-6 * b.abs().max().item<double>();
  };
  EXPECT_TRUE(near(together.weight, apart.weight));
  EXPECT_TRUE(near(together.bias, apart.bias));
}

TEST(JoinedProducts, OneAloneHasTheBitsOfItsOwn) {
  const Gradients apart(64, 48), together(64, 48);
  JoinedProducts joined;
  for (int m = 0; m < 3; ++m) {
    apart.Of(8, m).Add();
    joined.Keep(together.Of(8, m));
    joined.Run();
  }
  EXPECT_TRUE(SameBits(together.weight, apart.weight));
  EXPECT_TRUE(SameBits(together.bias, apart.bias));
}

TEST(JoinedProducts, KeepWeightsApart) {
  const Gradients first(8, 4), second(4, 8), without_bias(8, 4);
  JoinedProducts joined;
  for (int m = 0; m < 2; ++m) {
    for (const Gradients* gradients : {&second, &first, &without_bias}) {
      RowProduct product = gradients->Of(4, m);
      if (gradients == &without_bias) product.dbias.reset();
      joined.Keep(std::move(product));
    }
  }
  joined.Run();
  EXPECT_TRUE(SameBits(first.weight, without_bias.weight));
  EXPECT_EQ(without_bias.bias.abs().sum().item<float>(), 0);
  EXPECT_GT(first.bias.abs().sum().item<float>(), 0);
  const Gradients expected(4, 8);
  for (int m = 0; m < 2; ++m) expected.Of(4, m).Add();
  EXPECT_LT(MaxDifference(second.weight, expected.weight), 1e-5);
}

// Run() frees the kept rows weight by weight, so only the joined copy of one weight's rows is
// needed in addition.
TEST(JoinedProducts, FreeWhatTheyWereMadeOf) {
  InstallAllocator();
  constexpr int kAccount = 7;
  constexpr int64_t kRows = 64, kWidth = 4096, kTensor = 4 * kRows * kWidth;
  SetMemoryAccount(kAccount);
  std::vector<Gradients> weights;
  for (int i = 0; i < 4; ++i) weights.emplace_back(16, kWidth);
  JoinedProducts joined;
  const int64_t before = MemoryOf(kAccount).current;
  for (int m = 0; m < 4; ++m) {
    for (const Gradients& gradients : weights) joined.Keep(gradients.Of(kRows, m));
  }
  const int64_t kept = MemoryOf(kAccount).current;
  EXPECT_GE(kept - before, 16 * kTensor);
  ResetPeakMemory(kAccount);
  joined.Run();
  EXPECT_LE(MemoryOf(kAccount).peak - kept, 5 * kTensor) << "a copy of one weight's rows";
  EXPECT_EQ(MemoryOf(kAccount).current, before);
  SetMemoryAccount(0);
}

}  // namespace
}  // namespace strata
