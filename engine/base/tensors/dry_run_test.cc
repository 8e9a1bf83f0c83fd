// A dry run is compared with a real one: the same operators on the same inputs give results and
// gradients of the same shapes, strides and types, and take the same memory.
#include "engine/base/tensors/dry_run.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/base/tensors/allocator.h"
#include "engine/base/text.h"

namespace strata {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

/// The inputs of a case. All that is floating requires a gradient.
struct Inputs {
  explicit Inputs(at::ScalarType type)
      : matrix(Random({6, 10}, type)),
        row(Random({10}, type)),
        texts(Random({2, 5, 10}, type)),
        images(Random({2, 4, 8, 12}, type)),
        turned(Random({2, 4, 8, 12}, type).detach().contiguous(at::MemoryFormat::ChannelsLast)),
        channels(Random({4}, type)),
        labels(at::arange(6) % 4) {
    turned.requires_grad_(true);
  }
  static Tensor Random(at::IntArrayRef sizes, at::ScalarType type) {
    return at::rand(sizes, at::kFloat).to(type).requires_grad_(true);
  }
  Tensors all() const { return {matrix, row, texts, images, turned, channels}; }

  Tensor matrix, row, texts, images, turned, channels, labels;
};

struct Case {
  const char* name;
  std::function<Tensors(const Inputs&)> run;
  /// Some of ATen's losses hold the memory of all losses behind their mean; a dry run does not.
  bool has_equal_bytes = true;
};

/// Each operator of meta_kernels.cc is in here, and the usual ones of layers.
const std::vector<Case> kCases = {
    {"unary",
     [](const Inputs& in) {
       const Tensor x = in.matrix.t();
       return Tensors{x.relu(),     at::hardswish(x), at::hardtanh(x),    x.logit(0.1),
                      x.isnan(),    x.abs(),          x.logical_not(),    at::mish(x),
                      at::gelu(x),  x.exp(),          at::log_sigmoid(x), at::silu(x),
                      x.softmax(0), x.to(at::kDouble)};
     }},
    {"binary",
     [](const Inputs& in) {
       const Tensor &x = in.texts, &y = in.row;
       return Tensors{x + y,
                      x.mul(y).div(2),
                      at::floor_divide(x.detach(), y.detach()),
                      at::rsub(x, y),
                      at::where(x > 0.5, x, y),
                      at::where(x > 0.5, x, 0.0),
                      at::logical_and(x > 0.5, y > 0.5),
                      x.pow(2).masked_fill(x > 0.5, 1),
                      at::matmul(x, in.matrix.t()),
                      at::prelu(in.images, in.channels)};
     }},
    {"reductions",
     [](const Inputs& in) {
       const Tensor& x = in.texts;
       return Tensors{x.sum(),
                      x.mean(-1),
                      x.var(-1),
                      x.std(1),
                      std::get<1>(at::var_mean(x, {1})),
                      x.detach().max(),
                      x.detach().min(),
                      x.detach().prod(),
                      in.row.dot(in.row),
                      x.norm(),
                      x.logsumexp(1),
                      x.argmax(1),
                      x.cumsum(1)};
     }},
    {"places",
     [](const Inputs& in) {
       const Tensor& x = in.matrix;
       return Tensors{x.flip(0),
                      x.t().flip(1),
                      at::roll(x, 1, 0),
                      at::stack({x, x}, 1),
                      at::cat({x, x}, 1),
                      x.index_select(0, in.labels),
                      x.index({in.labels}),
                      at::embedding(x, in.labels),
                      x.gather(1, in.labels.unsqueeze(1)),
                      x.unfold(1, 4, 2),
                      x.reshape({3, 20}),
                      x.t().contiguous(),
                      in.texts.select(1, 0),
                      at::glu(x, 1),
                      at::tril(x)};
     }},
    {"norms",
     [](const Inputs& in) {
       const Tensor &x = in.texts, &c = in.channels;
       return Tensors{
           at::layer_norm(x, {10}, in.row, in.row),
           at::layer_norm(x, {5, 10}),
           at::layer_norm(in.matrix.t(), {6}),
           at::group_norm(in.images, 2, c, c),
           at::batch_norm(in.images, c, c, {}, {}, true, 0.1, 1e-5, false),
           at::batch_norm(in.turned, c, c, {}, {}, true, 0.1, 1e-5, false),
           at::batch_norm(in.images, c, c, c.detach(), c.detach(), false, 0.1, 1e-5, false)};
     }},
    {"attention",
     [](const Inputs& in) {
       const Tensor q = in.images;
       const Tensor parts = in.texts.view({2, 5, 2, 5}).transpose(1, 2);
       return Tensors{at::scaled_dot_product_attention(q, q, q),
                      at::scaled_dot_product_attention(q, q, q, {}, 0.0, true),
                      at::scaled_dot_product_attention(q, q, q, {}, 0.1, true),
                      at::scaled_dot_product_attention(parts, parts, parts)};
     }},
    {"convolutions",
     [](const Inputs& in) {
       const Tensor w = Inputs::Random({6, 4, 3, 3}, in.images.scalar_type());
       const Tensor grouped = Inputs::Random({4, 1, 3, 3}, in.images.scalar_type());
       const Tensor back = Inputs::Random({4, 3, 2, 2}, in.images.scalar_type());
       return Tensors{
           at::conv2d(in.images, w, {}, 2, 1), at::conv2d(in.turned, w),
           at::conv2d(in.images, grouped, in.channels, 1, 2, 2, 4),
           at::conv_transpose2d(in.images, back, {}, 2),
           at::conv1d(in.images.flatten(0, 1), Inputs::Random({3, 8, 3}, in.images.scalar_type()))};
     }},
    {"images",
     [](const Inputs& in) {
       const Tensor& x = in.images;
       const Tensor grid = Inputs::Random({2, 3, 5, 2}, x.scalar_type());
       return Tensors{at::adaptive_avg_pool2d(x, {2, 3}),
                      at::adaptive_avg_pool2d(in.turned, {1, 1}),
                      at::avg_pool2d(x, 2),
                      at::max_pool2d(x, 2),
                      at::reflection_pad2d(x, {1, 2, 3, 0}),
                      at::constant_pad_nd(x, {1, 1}),
                      at::grid_sampler(x, grid, 0, 0, false),
                      at::im2col(x, {3, 2}, {1, 2}, {1, 0}, {2, 1}),
                      at::im2col(x[0], {3, 2}, {1, 1}, {0, 0}, {1, 1}),
                      at::col2im(in.texts.transpose(1, 2), {8, 4}, {2, 1}, {1, 1}, {1, 0}, {2, 4}),
                      at::upsample_nearest2d(x, {16, 24})};
     }},
    {"losses",
     [](const Inputs& in) {
       const Tensor x = in.matrix.sigmoid(), y = in.matrix.detach();
       const Tensor planes = in.images.log_softmax(1);
       const Tensor classes = at::zeros({2, 8, 12}, at::kLong);
       return Tensors{at::mse_loss(x, y),
                      at::mse_loss(x, y, 0),
                      at::huber_loss(x, y),
                      at::smooth_l1_loss(x, y),
                      at::binary_cross_entropy(x, y, {}, 0),
                      at::binary_cross_entropy_with_logits(x, y),
                      at::cross_entropy_loss(x, in.labels),
                      at::nll_loss2d(planes, classes),
                      at::nll_loss2d(planes, classes, {}, 0)};
     },
     false},
    {"in place and out",
     [](const Inputs& in) {
       Tensor x = in.matrix.detach().clone();
       x.add_(1).mul_(in.row.detach()).clamp_(0, 1).uniform_().bernoulli_(0.5);
       Tensor out = at::empty({0}, x.options());
       at::mm_out(out, x, x.t());
       x.index_put_({in.labels}, in.row.detach());
       return Tensors{x, out, at::dropout(in.matrix, 0.5, true), at::arange(7).to(x),
                      at::full({2}, 3.0, x.options())};
     }},
};

std::string Describe(const Tensor& t) {
  if (!t.defined()) return "none";
  std::ostringstream text;
  text << t.scalar_type() << t.sizes() << " strides " << t.strides()
       << (t.requires_grad() ? " learns" : "");
  return text.str();
}

/// What a run gives: its results, the gradients of all inputs for each result, and the bytes that
/// results and graph hold.
std::vector<std::string> Outcome(const Case& of, const Inputs& in) {
  std::vector<std::string> told;
  const int64_t before = MemoryOf(0).current;
  const Tensors results = of.run(in);
  for (const Tensor& result : results) told.push_back(Describe(result));
  if (of.has_equal_bytes) told.push_back(Str(MemoryOf(0).current - before, " bytes"));
  for (const Tensor& result : results) {
    if (!result.requires_grad()) continue;
    for (const Tensor& gradient :
         torch::autograd::grad({result}, in.all(), {at::ones_like(result)}, true, false, true)) {
      told.push_back(Describe(gradient));
    }
  }
  return told;
}

int64_t ResidentBytes() {
  rusage use;
  getrusage(RUSAGE_SELF, &use);
  return int64_t{use.ru_maxrss} * 1024;
}

class DryRunTest : public ::testing::Test {
 protected:
  DryRunTest() { InstallAllocator(); }
};

TEST_F(DryRunTest, GivesTheShapesGradientsAndMemoryOfARealRun) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const Case& each : kCases) {
      SCOPED_TRACE(std::string(each.name) + " in " + c10::toString(type));
      const Inputs inputs(type);
      const std::vector<std::string> real = Outcome(each, inputs);
      const DryRun dry;
      EXPECT_EQ(Outcome(each, inputs), real);
      EXPECT_EQ(DryRun::obstacle(), "");
    }
  }
}

TEST_F(DryRunTest, TouchesNoMemoryInProportionToTensors) {
  const int64_t before = ResidentBytes();
  const DryRun dry;
  const Tensor weight = at::empty({1 << 20, 1 << 14}).normal_().requires_grad_(true);  // 64 GiB
  const Tensor x = at::zeros({1 << 14, 1 << 14});
  const Tensor y = at::layer_norm(at::linear(x, weight).relu(), {1 << 20});
  EXPECT_EQ(y.sizes(), at::IntArrayRef({1 << 14, 1 << 20}));
  EXPECT_GE(MemoryOf(0).current, int64_t{192} << 30);
  y.sum().backward();
  EXPECT_EQ(weight.grad().sizes(), weight.sizes());
  EXPECT_LT(ResidentBytes() - before, 64 << 20);
}

TEST_F(DryRunTest, WrongShapesFailAsInARealRun) {
  const Tensor a = at::ones({3, 4}), b = at::ones({5, 2}), image = at::ones({1, 3, 8, 8});
  const std::vector<std::function<void()>> wrong = {
      [&] { a.mm(b); }, [&] { a.add(b); }, [&] { a.clone().add_(b); }, [&] { at::linear(a, b); }};
  const auto error = [](const std::function<void()>& body) {
    try {
      body();
    } catch (const c10::Error& e) {
      return std::string(e.what_without_backtrace());
    }
    return std::string();
  };
  for (const auto& each : wrong) {
    const std::string real = error(each);
    EXPECT_NE(real, "");
    const DryRun dry;
    EXPECT_EQ(error(each), real);
  }
  const DryRun dry;
  EXPECT_NE(error([&] { at::conv2d(image, at::ones({6, 4, 3, 3})); }), "");
  EXPECT_NE(error([&] { at::conv2d(image, at::ones({6, 3, 9, 9})); }), "");
}

TEST_F(DryRunTest, AnOperatorThatReadsValuesIsTheObstacle) {
  const Tensor x = at::ones({3});
  {
    const DryRun dry;
    EXPECT_THROW(x.sum().item(), c10::Error);
    EXPECT_EQ(DryRun::obstacle(), "aten::_local_scalar_dense");
    EXPECT_THROW(x.nonzero(), c10::Error);
    EXPECT_THROW(at::one_hot(at::zeros({3}, at::kLong), 4), c10::Error);  // checks its argument
    EXPECT_EQ(DryRun::obstacle(), "aten::_local_scalar_dense");           // the first one
    const DryRun::Paused computes;
    EXPECT_EQ(x.sum().item<double>(), 3);
  }
  const DryRun another;
  EXPECT_EQ(DryRun::obstacle(), "");
}

TEST_F(DryRunTest, OrSkipsProductsOnly) {
  const Tensor a = at::ones({3, 4}), b = at::ones({4, 5});
  const DryRun products(DryRun::Skips::kProducts);
  EXPECT_EQ(a.add(1).sum().item<double>(), 24);
  EXPECT_EQ(a.mm(b).abs().sum().item<double>(), 0);
  EXPECT_EQ(at::linear(a, b.t(), at::ones({5})).abs().sum().item<double>(), 0);
  EXPECT_EQ(at::matmul(a.expand({2, 3, 4}), b).sizes(), at::IntArrayRef({2, 3, 5}));
}

TEST_F(DryRunTest, EndsWithItsScope) {
  const Tensor x = at::ones({3});
  { const DryRun dry; }
  EXPECT_FALSE(DryRun::IsOn());
  EXPECT_EQ(x.add(1).sum().item<double>(), 6);
}

TEST_F(DryRunTest, WritesInPlaceTakeNoMemory) {
  const DryRun dry;
  Tensor x = at::ones({1 << 20}), out = at::empty({1 << 20});
  const int64_t before = MemoryOf(0).current;
  ResetPeakMemory(0);
  x.add_(1).clamp_(0, 1);
  at::add_out(out, x, x);
  EXPECT_LT(MemoryOf(0).peak - before, 1024);  // the numbers as tensors
}

TEST_F(DryRunTest, AWriteToALazyCopyTakesMemory) {
  const auto write = [] {
    const Tensor x = at::ones({1 << 20});
    const int64_t before = MemoryOf(0).current;
    const Tensor copy = at::_lazy_clone(x);
    copy.add_(1);
    return MemoryOf(0).current - before;
  };
  const int64_t real = write();
  const DryRun dry;
  EXPECT_EQ(write(), real);
}

}  // namespace
}  // namespace strata
