#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/cuda/norm_kernels.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
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

class NormNode : public torch::autograd::Node {
 public:
  NormNode(const at::Tensor& x, const NormCall& call, const Pass& pass, at::Tensor means,
           at::Tensor rstds)
      : x_(x, /*is_output=*/false),
        means_(std::move(means)),
        rstds_(std::move(rstds)),
        width_(call.width),
        weight_grad_(OwnGradient(call.weight, pass)),
        bias_grad_(OwnGradient(call.bias, pass)) {
    const auto value = [](const Parameter* p) { return p ? p->value : at::Tensor(); };
    set_next_edges(torch::autograd::collect_next_edges(x, value(call.weight), value(call.bias)));
    if (call.weight) weight_ = SavedVariable(call.weight->value, /*is_output=*/false);
  }

  variable_list apply(variable_list&& grads) override {
    variable_list result(3);
    if (!grads[0].defined()) return result;
    TORCH_CHECK(!at::GradMode::is_enabled(), "a norm's gradient has no gradient on CUDA");
    const at::Tensor x = x_.unpack(), weight = weight_.unpack();
    const at::AutoDispatchBelowADInplaceOrView nothing_is_recorded;
    const at::Tensor dy = ForKernels(grads[0]);
    const bool for_weight = task_should_compute_output(1), for_bias = task_should_compute_output(2);
    at::Tensor dx = at::empty_like(x), partial;
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
                            Memory(dx), Memory(partial), static_cast<int>(for_bias),
                            static_cast<int>(rows), static_cast<int>(rows_of_block),
                            static_cast<int>(width_)}});
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
    if (for_weight) result[1] = first;
    if (for_bias) result[2] = second;
  }

  SavedVariable x_, weight_;
  at::Tensor means_;  // undefined for RMSNorm
  at::Tensor rstds_;
  const int64_t width_;
  const at::Tensor weight_grad_, bias_grad_;
};

bool IsFloatRow(const Parameter* parameter, int64_t width) {
  if (!parameter) return true;
  const at::Tensor& value = parameter->value;
  return value.scalar_type() == at::kFloat && value.numel() == width && AreForKernels({value});
}

}  // namespace

std::optional<at::Tensor> NormByKernel(const at::Tensor& x, const NormCall& call,
                                       const Pass& pass) {
  KernelLauncher* const launcher = KernelsFor(x);
  const std::optional<KernelElement> element = KernelElementOf(x.scalar_type());
  const int64_t width = call.width;
  if (!launcher || !element || width > int64_t{kColumnsOfThread} * kMostThreads)
    return std::nullopt;
  if (!AreForKernels({x}) || x.numel() / width > std::numeric_limits<int>::max()) {
    return std::nullopt;
  }
  if (!IsFloatRow(call.weight, width) || !IsFloatRow(call.bias, width)) return std::nullopt;
  const int64_t rows = x.numel() / width;
  const auto value = [](const Parameter* p) {
    return p ? Memory(p->value) : KernelArgument(nullptr, 0);
  };
  at::Tensor y, means, rstds;
  {
    const at::NoGradGuard no_grad;
    y = at::empty_like(x);
    rstds = FloatsLike(x, {rows});
    if (call.centred) means = FloatsLike(x, {rows});
  }
  KernelCall forward = {.name = call.centred ? "layer_norm" : "rms_norm",
                        .element = *element,
                        .grid_x = static_cast<unsigned>(rows),
                        .block = ThreadsOf(width),
                        .arguments = {Memory(x), value(call.weight)}};
  std::vector<KernelArgument>& arguments = forward.arguments;
  if (call.centred) arguments.push_back(value(call.bias));
  arguments.push_back(Memory(y));
  if (call.centred) arguments.push_back(Memory(means));
  arguments.insert(arguments.end(),
                   {Memory(rstds), static_cast<int>(width), static_cast<float>(call.eps)});
  LaunchOn(x, *launcher, forward);
  const auto learns = [](const Parameter* p) { return p && p->value.requires_grad(); };
  const bool records = x.requires_grad() || learns(call.weight) || learns(call.bias);
  if (!records || !at::GradMode::is_enabled()) return y;
  const std::shared_ptr<NormNode> node(
      new NormNode(x, call, pass, std::move(means), std::move(rstds)), torch::autograd::deleteNode);
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace strata
