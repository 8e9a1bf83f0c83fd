#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/dropout.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_dropout.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/tensors/dry_run.h"
#include "engine/layers/cuda/dropout_kernels.h"
#include "engine/layers/families.h"
#include "engine/layers/kernels/dropped_relu.h"
#include "engine/layers/random/random.h"
#include "engine/layers/unary.h"

namespace strata {
namespace {

/// Draws a tensor of 1 for elements to keep and 0 for elements to drop, from the same random
/// numbers as at::dropout on the CPU and at::_fused_dropout elsewhere.
at::Tensor Kept(at::IntArrayRef sizes, const at::TensorOptions& options, double p) {
  if (options.device().is_cpu()) return at::empty(sizes, options).bernoulli_(1 - p);
  return std::get<1>(at::_fused_dropout(at::ones(sizes, options), 1 - p)).to(options);
}

/// Draws dropout's factors, 0 or 1 / (1 - p), for a tensor of these sizes.
at::Tensor Factors(at::IntArrayRef sizes, const at::TensorOptions& options, double p) {
  if (!options.device().is_cpu()) {
    const at::Tensor ones = at::ones(sizes, options);
    if (IsForDropout(ones)) return DropoutByKernel(ones, {p, DrawSeed()});
  }
  return Kept(sizes, options, p).div_(1 - p);
}

/// Dropout of single elements. inplace=true has no effect here and in the other dropouts, since the
/// backward pass needs the output in memory of its own.
class Dropout : public UnaryLayer {
 public:
  Dropout(const LayerSpec& spec, const BuildContext& context)
      : p_(spec.Number("p")),
        axis_(spec.input_shard ? context.axis : nullptr),
        dim_(spec.input_shard.value_or(-1)) {}
  OutputMemory output_memory() const override { return OutputMemory::kInput; }
  bool is_apart() const { return !axis_; }
  double p() const { return p_; }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass& pass) override {
    return ApplyDropout(x, p_, pass.training, {axis_.get(), dim_});
  }

 private:
  const double p_;
  const std::shared_ptr<AxisComm> axis_;  // null: the input is whole
  const int64_t dim_;
};

/// A dropout that computes its output with drop(x, p) for 0 < p < 1.
template <at::Tensor (*drop)(const at::Tensor& x, double p)>
class DropoutBy : public UnaryLayer {
 public:
  explicit DropoutBy(const Value& args) : p_(args["p"].as_double()) {}
  OutputMemory output_memory() const override { return OutputMemory::kInput; }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass& pass) override {
    if (!pass.training || p_ == 0) return x;
    return p_ == 1 ? x.mul(0) : drop(x, p_);
  }

 private:
  const double p_;
};

/// Multiplies all elements of a channel by the same factor. x is (N, C, ...).
at::Tensor DropChannels(const at::Tensor& x, double p) {
  std::vector<int64_t> sizes(x.dim(), 1);
  std::copy_n(x.sizes().begin(), 2, sizes.begin());
  return x.mul(Factors(sizes, x.options(), p));
}

/// Alpha dropout (Klambauer et al., arXiv:1706.02515): a dropped element becomes SELU's lower
/// limit, -alpha * scale. Then an affine function restores mean 0 and variance 1.
at::Tensor DropAlpha(const at::Tensor& x, double p) {
  constexpr double kAlpha = 1.7580993408473766;
  const double a = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
  at::Tensor kept = Kept(x.sizes(), x.options(), p);
  const at::Tensor shift = kept.add(-1).mul_(kAlpha * a).add_(kAlpha * a * p);
  return x.mul(kept.mul_(a)).add_(shift);
}

/// The autograd node of y = relu(x) * factors.
class DroppedReluNode : public torch::autograd::Node {
 public:
  DroppedReluNode(const at::Tensor& x, at::Tensor factors)
      : torch::autograd::Node(torch::autograd::collect_next_edges(x)),
        factors_(std::move(factors)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    if (!grads[0].defined()) return {at::Tensor()};
    const at::AutoDispatchBelowADInplaceOrView nothing_is_recorded;
    return {grads[0].mul(factors_)};
  }
  void release_variables() override { factors_.reset(); }

 private:
  at::Tensor factors_;  // the derivative of y: the factors, but 0 where x is not positive
};

/// Returns relu(x) with dropout, and sets `factors` to the derivative of the result.
at::Tensor DropReluOf(const at::Tensor& x, double p, const Part& part, at::Tensor& factors) {
  if (!part.axis && x.scalar_type() == at::kFloat && x.is_contiguous()) {
    factors = Kept(x.sizes(), x.options(), p);
    at::Tensor y = at::empty_like(x);
    if (DryRun::IsOn()) return y;
    const float scale = 1.0f / static_cast<float>(1 - p);
    DropRelu(x.const_data_ptr<float>(), scale, factors.mutable_data_ptr<float>(),
             y.mutable_data_ptr<float>(), x.numel());
    return y;
  }
  if (part.axis) {
    factors = part.Of(Factors(part.WholeSizes(x.sizes()), x.options(), p));
  } else {
    factors = at::empty_like(x).bernoulli_(1 - p).div_(1 - p);
  }
  at::Tensor y = at::relu(x).mul_(factors);
  factors = factors.masked_fill(x.le(0), 0);
  return y;
}

constexpr LayerEntry kLayers[] = {{"Dropout", New<Dropout>},
                                  {"Dropout1d", New<DropoutBy<DropChannels>>},
                                  {"Dropout2d", New<DropoutBy<DropChannels>>},
                                  {"Dropout3d", New<DropoutBy<DropChannels>>},
                                  {"AlphaDropout", New<DropoutBy<DropAlpha>>}};

}  // namespace

at::Tensor ApplyDropout(const at::Tensor& x, double p, bool training, const Part& part) {
  if (part.axis && training && p > 0 && p < 1) {
    return x.mul(part.Of(Factors(part.WholeSizes(x.sizes()), x.options(), p)));
  }
  // On an accelerator at::dropout takes no generator, but at::_fused_dropout does. It draws in the
  // order in memory, which depends on the plan (tensors received over a link are contiguous). So x
  // is made contiguous.
  if (!x.is_cpu() && training && p > 0 && p < 1) {
    if (IsForDropout(x)) return DropoutByKernel(x, {p, DrawSeed()});
    return std::get<0>(at::_fused_dropout(x.contiguous(), 1 - p));
  }
  return at::dropout(x, p, training);
}

at::Tensor DroppedRelu(const at::Tensor& x, double p, bool training, const Part& part) {
  if (!x.is_cpu() || !training || p == 0 || p == 1) {
    return ApplyDropout(at::relu(x), p, training, part);
  }
  at::Tensor factors;
  at::Tensor y = [&] {
    const at::NoGradGuard no_grad;
    return DropReluOf(x.detach(), p, part, factors);
  }();
  if (at::GradMode::is_enabled() && x.requires_grad()) {
    const std::shared_ptr<DroppedReluNode> node(new DroppedReluNode(x, std::move(factors)),
                                                torch::autograd::deleteNode);
    torch::autograd::set_history(y, node);
  }
  return y;
}

std::optional<double> DropoutOf(const Layer& layer) {
  const auto* const dropout = dynamic_cast<const Dropout*>(&layer);
  return dropout && dropout->is_apart() ? std::make_optional(dropout->p()) : std::nullopt;
}

LayerTable DropoutLayers() { return kLayers; }

}  // namespace strata
