// Tests MaxPool2d, which has a kernel of our own, against at::max_pool2d.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/layers/layer.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::Normal;
using testing::SameBits;

using Ints = std::vector<int64_t>;

struct Windows {
  Ints kernel, stride, padding, dilation;
  bool ceil_mode;
};

struct Case {
  Ints shape;
  Windows windows;

  std::string name() const {
    return Str(Join(shape, "x"), ", kernel ", Join(windows.kernel, "x"), ", stride ",
               Join(windows.stride, "x"), ", padding ", Join(windows.padding, "x"));
  }
};

/// Cases with windows that overlap, leave gaps, reach beyond the image or would begin beyond it,
/// and with rows longer than a register's 16 lanes.
std::vector<Case> Cases() {
  return {
      {{2, 3, 13, 13}, {{3, 3}, {2, 2}, {0, 0}, {1, 1}, false}},
      {{1, 2, 7, 40}, {{3, 2}, {1, 2}, {1, 1}, {1, 1}, false}},
      {{1, 1, 9, 70}, {{2, 2}, {2, 2}, {0, 0}, {1, 1}, true}},
      {{2, 1, 11, 12}, {{3, 3}, {2, 1}, {1, 0}, {2, 3}, true}},
      {{1, 1, 3, 17}, {{2, 2}, {3, 3}, {0, 1}, {1, 1}, true}},
      {{1, 1, 1, 1}, {{1, 1}, {1, 1}, {0, 0}, {1, 1}, false}},
      {{1, 2, 20, 33}, {{5, 4}, {7, 3}, {2, 2}, {1, 1}, false}},
  };
}

Value ListOf(const Ints& values) { return Value::List(values.begin(), values.end()); }

at::Tensor OfLayer(const at::Tensor& x, const Windows& w) {
  const LayerSpec spec = MakeLayer("MaxPool2d", {ListOf(w.kernel)},
                                   {{"stride", ListOf(w.stride)},
                                    {"padding", ListOf(w.padding)},
                                    {"dilation", ListOf(w.dilation)},
                                    {"ceil_mode", w.ceil_mode}},
                                   {}, "");
  return BuildLayer(spec, nullptr)->Forward({x}, {})[0];
}

at::Tensor OfAten(const at::Tensor& x, const Windows& w) {
  return at::max_pool2d(x, w.kernel, w.stride, w.padding, w.dilation, w.ceil_mode);
}

struct Seen {
  at::Tensor output, gradient;
};

template <class Function>
Seen Run(const at::Tensor& input, const Function& pool) {
  const at::Tensor x = input.clone().requires_grad_(true);
  const at::Tensor y = pool(x);
  y.backward(Normal(y.sizes(), 9));
  return {y, x.grad()};
}

void ExpectAtensBits(const at::Tensor& x, const Case& c) {
  const Seen ours = Run(x, [&](const at::Tensor& in) { return OfLayer(in, c.windows); });
  const Seen aten = Run(x, [&](const at::Tensor& in) { return OfAten(in, c.windows); });
  EXPECT_TRUE(SameBits(ours.output, aten.output)) << c.name();
  EXPECT_TRUE(SameBits(ours.gradient, aten.gradient)) << c.name();
}

TEST(MaxPoolTest, HasAtensBits) {
  for (const Case& c : Cases()) ExpectAtensBits(Normal(c.shape, 1), c);
}

TEST(MaxPoolTest, ChoosesTheSameOfEquals) {
  for (const Case& c : Cases()) {
    ExpectAtensBits(Normal(c.shape, 2).sign(), c);
    ExpectAtensBits(at::full(c.shape, -std::numeric_limits<float>::infinity()), c);
  }
}

TEST(MaxPoolTest, PassesNotANumberOn) {
  for (const Case& c : Cases()) {
    at::Tensor x = Normal(c.shape, 3);
    x.masked_fill_(Normal(c.shape, 4) > 1, std::nan(""));
    ExpectAtensBits(x, c);
  }
}

TEST(MaxPoolTest, TakesEveryOrderOfMemoryAndType) {
  const Case c = Cases()[0];
  const at::Tensor x = Normal(c.shape, 5);
  ExpectAtensBits(x.contiguous(at::MemoryFormat::ChannelsLast), c);
  ExpectAtensBits(x.to(at::kDouble), c);
  ExpectAtensBits(x[0], c);
}

TEST(MaxPoolTest, RecordsNothingWithoutNeed) {
  const Case c = Cases()[0];
  EXPECT_FALSE(OfLayer(Normal(c.shape, 6), c.windows).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(OfLayer(Normal(c.shape, 6).requires_grad_(true), c.windows).requires_grad());
}

}  // namespace
}  // namespace strata
