#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/cuda/dropout_kernels.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>

#include "engine/layers/cuda/launch.h"

namespace strata {
namespace {

using torch::autograd::variable_list;

/// x + dropout(f); an undefined x counts as zeros.
at::Tensor Sum(const at::Tensor& x, const at::Tensor& f, const Drops& drops) {
  constexpr int64_t kThreads = 256, kOfBlock = 8 * kThreads;
  at::Tensor y = at::empty_like(f);
  LaunchOn(f, *KernelsFor(f),
           {.name = "dropout",
            .element = *KernelElementOf(f.scalar_type()),
            .grid_x = static_cast<unsigned>((f.numel() + kOfBlock - 1) / kOfBlock),
            .block = kThreads,
            .arguments = {Memory(x), Memory(f), Memory(y), f.numel(),
                          static_cast<int64_t>(drops.seed), static_cast<float>(1 - drops.p)}});
  return y;
}

/// The node of x + dropout(f), or of dropout(f).
class SumNode : public torch::autograd::Node {
 public:
  SumNode(const at::Tensor& x, const at::Tensor& f, const Drops& drops)
      : torch::autograd::Node(torch::autograd::collect_next_edges(x, f)), drops_(drops) {}

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor()};
    TORCH_CHECK(!at::GradMode::is_enabled(), "a dropout's gradient has no gradient on CUDA");
    const at::AutoDispatchBelowADInplaceOrView nothing_is_recorded;
    if (drops_.p == 0) return {grads[0], grads[0]};
    return {grads[0], Sum(at::Tensor(), ForKernels(grads[0]), drops_)};
  }

 private:
  const Drops drops_;
};

at::Tensor Recorded(const at::Tensor& x, const at::Tensor& f, const Drops& drops) {
  at::Tensor y;
  {
    const at::NoGradGuard no_grad;
    y = Sum(x, ForKernels(f), drops);
  }
  const bool records = (x.defined() && x.requires_grad()) || f.requires_grad();
  if (!records || !at::GradMode::is_enabled()) return y;
  const std::shared_ptr<SumNode> node(new SumNode(x, f, drops), torch::autograd::deleteNode);
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace

bool IsForDropout(const at::Tensor& x) {
  return KernelsFor(x) && KernelElementOf(x.scalar_type()) && x.numel() > 0;
}

bool AreForSum(const at::Tensor& x, const at::Tensor& f) {
  return IsForDropout(x) && x.scalar_type() == f.scalar_type() && x.sizes() == f.sizes() &&
         AreForKernels({x, f});
}

at::Tensor SumByKernel(const SumCall& call) { return Recorded(call.x, call.f, call.drops); }

at::Tensor DropoutByKernel(const at::Tensor& x, const Drops& drops) {
  return Recorded(at::Tensor(), x, drops);
}

}  // namespace strata
