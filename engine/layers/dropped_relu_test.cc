#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/layers/dropout.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::SameBits;

struct Passed {
  at::Tensor output, gradient;
};

template <class Function>
Passed Pass(const Function& function, const at::Tensor& values) {
  const RandomScope scope(5);
  const at::Tensor x = values.clone().requires_grad_(true);
  const at::Tensor y = function(x);
  y.backward(at::arange(y.numel(), at::kFloat).add(1).sin().view(y.sizes()).to(y.scalar_type()));
  return {y, x.grad()};
}

void ExpectAtens(const at::Tensor& values, double p, bool training = true) {
  const Passed got = Pass([&](const at::Tensor& x) { return DroppedRelu(x, p, training); }, values);
  const Passed expected =
      Pass([&](const at::Tensor& x) { return at::dropout(at::relu(x), p, training); }, values);
  EXPECT_TRUE(SameBits(got.output.add(0), expected.output.add(0))) << values.sizes() << " " << p;
  EXPECT_TRUE(SameBits(got.gradient.add(0), expected.gradient.add(0))) << values.sizes() << p;
}

at::Tensor Values(int64_t count) { return at::arange(count, at::kFloat).mul(0.7).sin(); }

TEST(DroppedRelu, HasAtensNumbers) {
  for (const int64_t count : {1, 15, 16, 17, 1000, 40000}) {
    for (const double p : {0.0, 0.1, 0.5, 1.0}) ExpectAtens(Values(count), p);
  }
  ExpectAtens(Values(60).view({3, 4, 5}), 0.3);
  ExpectAtens(Values(60).view({10, 6}).t(), 0.3);
  ExpectAtens(Values(60), 0.3, /*training=*/false);
  ExpectAtens(Values(60).to(at::kDouble), 0.3);
  ExpectAtens(Values(60).to(at::kBFloat16), 0.3);
}

TEST(DroppedRelu, KeepsWhatIsNoNumber) {
  const double nan = std::nan("");
  const at::Tensor x = at::full({4096}, nan);
  const RandomScope scope(5);
  EXPECT_TRUE(DroppedRelu(x, 0.5, true).isnan().all().item<bool>());
  EXPECT_TRUE(DroppedRelu(at::full({4096}, -std::numeric_limits<double>::infinity()), 0.5, true)
                  .eq(0)
                  .all()
                  .item<bool>());
}

}  // namespace
}  // namespace strata
