#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/cuda/norm_kernels.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "engine/layers/cuda/launch.h"

namespace strata {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

constexpr int kColumnsOfThread = 8, kMostThreads = 1024, kWarp = 32;
/// The most blocks of a backward. Each writes one row of partial sums, whatever the GPU is, so that
/// the order of sums depends on sizes only.
constexpr int64_t kMostBlocks = 512;

int64_t Quotient(int64_t a, int64_t b) { return (a + b - 1) / b; }

unsigned ThreadsOf(int64_t width) {
  return static_cast<unsigned>(Quotient(width, kColumnsOfThread * kWarp) * kWarp);
}

at::Tensor FloatsLike(const at::Tensor& x, at::IntArrayRef sizes) {
  return at::empty(sizes, x.options().dtype(at::kFloat));
}

/// The gradient buffer to add to, or undefined if autograd wants the gradient.
at::Tensor OwnGradient(const Parameter* parameter, const Pass& pass) {
  const bool collects = parameter && pass.weight_gradients && !parameter->frozen;
  const bool fits = collects && parameter->grad.defined() && parameter->grad.is_contiguous() &&
                    parameter->grad.scalar_type() == at::kFloat;
  return fits ? parameter->grad : at::Tensor();
}

/// What is normalised: x, or x + dropout(f), which is `sum` then.
struct NormInput {
  at::Tensor x, f = {}, sum = {};
  Drops drops = {};

  const at::Tensor& row() const { return sum.defined() ? sum : x; }
};

/// Its inputs are x, f, weight and bias. The outputs are the norm, or the sum and its norm.
class NormNode : public torch::autograd::Node {
 public:
  NormNode(const NormInput& input, const NormCall& call, const Pass& pass, at::Tensor means,
           at::Tensor rstds)
      : sums_(input.sum.defined()),
        drops_(input.drops),
        x_(sums_ ? input.sum.variable_data() : input.x, /*is_output=*/false),
        means_(std::move(means)),
        rstds_(std::move(rstds)),
        width_(call.width),
        weight_grad_(OwnGradient(call.weight, pass)),
        bias_grad_(OwnGradient(call.bias, pass)) {
    const auto value = [](const Parameter* p) { return p ? p->value : at::Tensor(); };
    set_next_edges(torch::autograd::collect_next_edges(input.x, input.f, value(call.weight),
                                                       value(call.bias)));
    if (call.weight) weight_ = SavedVariable(call.weight->value, /*is_output=*/false);
  }

  variable_list apply(variable_list&& grads) override {
    variable_list result(4);
    const at::Tensor& of_norm = grads.back();
    const at::Tensor of_sum = sums_ ? grads[0] : at::Tensor();
    if (!of_norm.defined() && !of_sum.defined()) return result;
    TORCH_CHECK(!at::GradMode::is_enabled(), "a norm's gradient has no gradient on CUDA");
    const at::Tensor x = x_.unpack(), weight = weight_.unpack();
    const at::AutoDispatchBelowADInplaceOrView nothing_is_recorded;
    const at::Tensor dy = of_norm.defined() ? ForKernels(of_norm) : at::zeros_like(x);
    const at::Tensor more = of_sum.defined() ? ForKernels(of_sum) : of_sum;
    const bool for_weight = task_should_compute_output(2), for_bias = task_should_compute_output(3);
    at::Tensor dx = at::empty_like(x), df, partial;
    if (drops_.p > 0) df = at::empty_like(x);
    const int64_t rows = x.numel() / width_;
    const int64_t rows_of_block = Quotient(rows, kMostBlocks);
    const int64_t blocks = Quotient(rows, rows_of_block);
    if (for_weight || for_bias) partial = FloatsLike(x, {blocks, (for_bias ? 2 : 1) * width_});
    KernelLauncher& launcher = *KernelsFor(x);
    LaunchOn(x, launcher,
             {.name = "norm_backward",
              .element = *KernelElementOf(x.scalar_type()),
              .grid_x = static_cast<unsigned>(blocks),
              .block = ThreadsOf(width_),
              .arguments = {Memory(dy), Memory(x), Memory(weight), Memory(means_), Memory(rstds_),
                            Memory(more), Memory(dx), Memory(df), Memory(partial),
                            static_cast<int>(for_bias), static_cast<int>(rows),
                            static_cast<int>(rows_of_block), static_cast<int>(width_),
                            static_cast<int64_t>(drops_.seed), static_cast<float>(1 - drops_.p)}});
    if (sums_) result[1] = df.defined() ? df : dx;
    result[0] = std::move(dx);
    if (for_weight || for_bias) AddUp(launcher, partial, for_weight, for_bias, result);
    return result;
  }

  void release_variables() override {
    x_.reset_data();
    weight_.reset_data();
    means_.reset();
    rstds_.reset();
  }

 private:
  /// Adds the rows of `partial` to the gradient buffers, or puts their sums into `result`.
  void AddUp(KernelLauncher& launcher, const at::Tensor& partial, bool for_weight, bool for_bias,
             variable_list& result) const {
    constexpr unsigned kThreads = 256;
    // A sum that nobody wants, of a frozen parameter, gets memory of its own.
    const bool adds =
        (!for_weight || weight_grad_.defined()) && (!for_bias || bias_grad_.defined());
    const auto target = [&](const at::Tensor& own, bool wanted) {
      return adds && wanted ? own : FloatsLike(partial, {width_});
    };
    const at::Tensor first = target(weight_grad_, for_weight);
    const at::Tensor second = for_bias ? target(bias_grad_, true) : at::Tensor();
    LaunchOn(partial, launcher,
             {.name = "sum_rows",
              .element = KernelElement::kFp32,
              .grid_x = static_cast<unsigned>(Quotient(partial.size(1), kWarp)),
              .block = kThreads,
              .arguments = {Memory(partial), Memory(first), Memory(second),
                            static_cast<int>(partial.size(0)), static_cast<int>(partial.size(1)),
                            static_cast<int>(width_), static_cast<int>(adds)}});
    if (adds) return;
    if (for_weight) result[2] = first;
    if (for_bias) result[3] = second;
  }

  const bool sums_;
  const Drops drops_;
  SavedVariable x_, weight_;  // x_: NormInput::row()
  at::Tensor means_;          // undefined for RMSNorm
  at::Tensor rstds_;
  const int64_t width_;
  const at::Tensor weight_grad_, bias_grad_;
};

bool IsFloatRow(const Parameter* parameter, int64_t width) {
  if (!parameter) return true;
  const at::Tensor& value = parameter->value;
  return value.scalar_type() == at::kFloat && value.numel() == width && AreForKernels({value});
}

bool TakesNorm(const at::Tensor& x, const NormCall& call) {
  const int64_t width = call.width;
  return KernelsFor(x) && KernelElementOf(x.scalar_type()) &&
         width <= int64_t{kColumnsOfThread} * kMostThreads && AreForKernels({x}) &&
         x.numel() / width <= std::numeric_limits<int>::max() && IsFloatRow(call.weight, width) &&
         IsFloatRow(call.bias, width);
}

/// Fills in the sum, if there is an f, and returns the norm.
at::Tensor Normalised(NormInput input, const NormCall& call, const Pass& pass,
                      at::Tensor* sum = nullptr) {
  const at::Tensor& x = input.x;
  const int64_t rows = x.numel() / call.width;
  const auto value = [](const Parameter* p) {
    return p ? Memory(p->value) : KernelArgument(nullptr, 0);
  };
  at::Tensor y, means, rstds;
  {
    const at::NoGradGuard no_grad;
    y = at::empty_like(x);
    if (sum) input.sum = at::empty_like(x);
    rstds = FloatsLike(x, {rows});
    if (call.centred) means = FloatsLike(x, {rows});
  }
  KernelCall forward = {
      .name = call.centred ? "layer_norm" : "rms_norm",
      .element = *KernelElementOf(x.scalar_type()),
      .grid_x = static_cast<unsigned>(rows),
      .block = ThreadsOf(call.width),
      .arguments = {Memory(x), Memory(input.f), Memory(input.sum), value(call.weight)}};
  std::vector<KernelArgument>& arguments = forward.arguments;
  if (call.centred) arguments.push_back(value(call.bias));
  arguments.push_back(Memory(y));
  if (call.centred) arguments.push_back(Memory(means));
  arguments.insert(arguments.end(),
                   {Memory(rstds), static_cast<int>(call.width), static_cast<float>(call.eps),
                    static_cast<int64_t>(input.drops.seed), static_cast<float>(1 - input.drops.p)});
  LaunchOn(x, *KernelsFor(x), forward);
  const auto learns = [](const Parameter* p) { return p && p->value.requires_grad(); };
  const bool records = x.requires_grad() || (sum && input.f.requires_grad()) ||
                       learns(call.weight) || learns(call.bias);
  if (records && at::GradMode::is_enabled()) {
    const std::shared_ptr<NormNode> node(
        new NormNode(input, call, pass, std::move(means), std::move(rstds)),
        torch::autograd::deleteNode);
    if (sum) torch::autograd::set_history(input.sum, node);
    torch::autograd::set_history(y, node);
  }
  if (sum) *sum = input.sum;
  return y;
}

}  // namespace

std::optional<at::Tensor> NormByKernel(const at::Tensor& x, const NormCall& call,
                                       const Pass& pass) {
  if (!TakesNorm(x, call)) return std::nullopt;
  return Normalised({.x = x}, call, pass);
}

std::optional<SumAndNorm> SumAndNormByKernel(const SumCall& sum, const NormCall& call,
                                             const Pass& pass) {
  if (!TakesNorm(sum.x, call)) return std::nullopt;
  SumAndNorm both;
  both.norm = Normalised({.x = sum.x, .f = sum.f, .drops = sum.drops}, call, pass, &both.sum);
  return both;
}

}  // namespace strata
