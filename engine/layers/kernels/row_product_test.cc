#include "engine/layers/kernels/row_product.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::MaxDifference;

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

/// Gradients that were not set to zero since the step before: NaN shows if one is read.
Gradients Unset(int64_t out, int64_t in) {
  Gradients gradients(out, in);
  gradients.weight.fill_(std::numeric_limits<float>::quiet_NaN());
  return gradients;
}

/// Compares values, not bits, since overwriting may give -0 where adding to 0 gives 0.
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

TEST(StaleGradients, ThatLieSideBySideAreTakenTogether) {
  const at::Tensor all = at::ones({12});
  const auto part = [&](int64_t begin, int64_t end) { return all.narrow(0, begin, end - begin); };
  StaleGradients stale;
  for (const int64_t begin : {0, 4, 8}) stale.Mark(part(begin, begin + 4));
  EXPECT_TRUE(stale.Take(part(0, 8)));
  EXPECT_FALSE(stale.Take(part(0, 4)));
  EXPECT_EQ(all.sum().item<float>(), 12) << "nothing is made zero";
  EXPECT_FALSE(stale.Take(part(4, 12))) << "the first half is not stale";
  EXPECT_EQ(part(0, 8).sum().item<float>(), 8);
  EXPECT_EQ(part(8, 12).sum().item<float>(), 0);
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

}  // namespace
}  // namespace strata
