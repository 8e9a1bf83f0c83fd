#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/cuda/llama_kernels.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "engine/layers/cuda/launch.h"

namespace strata {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

constexpr int64_t kPack = 8, kThreads = 256;

unsigned BlocksFor(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

/// The result `y` of kernels, as the output of a node that `make` makes.
template <class Make>
at::Tensor Recorded(at::Tensor y, bool needs_gradient, const Make& make) {
  if (!needs_gradient || !at::GradMode::is_enabled()) return y;
  torch::autograd::set_history(y, make());
  return y;
}

// ---- SwiGLU

class SwigluNode : public torch::autograd::Node {
 public:
  SwigluNode(const at::Tensor& gate, const at::Tensor& up)
      : torch::autograd::Node(torch::autograd::collect_next_edges(gate, up)),
        gate_(gate, /*is_output=*/false),
        up_(up, /*is_output=*/false) {}

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor()};
    TORCH_CHECK(!at::GradMode::is_enabled(), "SwiGLU's gradient has no gradient on CUDA");
    const at::Tensor gate = gate_.unpack(), up = up_.unpack();
    const at::AutoDispatchBelowADInplaceOrView nothing_is_recorded;
    const at::Tensor dy = ForKernels(grads[0]);
    at::Tensor dgate = at::empty_like(gate), dup = at::empty_like(up);
    LaunchOn(gate, *KernelsFor(gate),
             {.name = "swiglu_backward",
              .element = *KernelElementOf(gate.scalar_type()),
              .grid_x = BlocksFor((gate.numel() + kPack - 1) / kPack),
              .block = kThreads,
              .arguments = {Memory(dy), Memory(gate), Memory(up), Memory(dgate), Memory(dup),
                            gate.numel()}});
    return {std::move(dgate), std::move(dup)};
  }
  void release_variables() override {
    gate_.reset_data();
    up_.reset_data();
  }

 private:
  SavedVariable gate_, up_;
};

// ---- Rotary positions

struct Rotation {
  double theta;
  int64_t first_position;
};

/// True if the kernel takes x: its elements lie side by side in some order of dims, with those of a
/// head's token last, and vectors are aligned.
bool IsForRotation(const at::Tensor& x) {
  constexpr uintptr_t kVector = 16;
  if (x.dim() != 4 || x.numel() == 0 || !x.is_non_overlapping_and_dense()) return false;
  const int64_t half = x.size(3) / 2;
  if (x.size(3) % 2 != 0 || x.stride(3) != 1) return false;
  if (half % kPack != 0) return true;
  const bool begins_so = reinterpret_cast<uintptr_t>(x.const_data_ptr()) % kVector == 0;
  return begins_so && x.stride(0) % kPack == 0 && x.stride(1) % kPack == 0 &&
         x.stride(2) % kPack == 0;
}

at::Tensor Rotated(const at::Tensor& x, const Rotation& rotation, float sign) {
  constexpr int64_t kHeadsOfThread = 4;
  at::Tensor y = at::empty_like(x);
  const auto size = [&](int dim) { return static_cast<int>(x.size(dim)); };
  const int64_t packs = (x.size(3) / 2 + kPack - 1) / kPack;
  LaunchOn(x, *KernelsFor(x),
           {.name = "rotate",
            .element = *KernelElementOf(x.scalar_type()),
            .grid_x = BlocksFor(x.size(0) * x.size(2) * packs),
            .grid_y = static_cast<unsigned>((x.size(1) + kHeadsOfThread - 1) / kHeadsOfThread),
            .block = kThreads,
            .arguments = {Memory(x), Memory(y), size(0), size(1), size(2), size(3), x.stride(0),
                          x.stride(1), x.stride(2), static_cast<int>(rotation.first_position),
                          static_cast<float>(std::log2(rotation.theta)), sign}});
  return y;
}

class RotateNode : public torch::autograd::Node {
 public:
  RotateNode(const at::Tensor& x, Rotation rotation)
      : torch::autograd::Node(torch::autograd::collect_next_edges(x)), rotation_(rotation) {}

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {at::Tensor()};
    TORCH_CHECK(!at::GradMode::is_enabled(), "a rotation's gradient has no gradient on CUDA");
    const at::AutoDispatchBelowADInplaceOrView nothing_is_recorded;
    const at::Tensor& dy = grads[0];
    return {Rotated(IsForRotation(dy) ? dy : ForKernels(dy), rotation_, -1.0F)};
  }

 private:
  const Rotation rotation_;
};

}  // namespace

std::optional<at::Tensor> SwigluByKernel(const at::Tensor& gate, const at::Tensor& up) {
  KernelLauncher* const launcher = KernelsFor(gate);
  const std::optional<KernelElement> element = KernelElementOf(gate.scalar_type());
  if (!launcher || !element || up.scalar_type() != gate.scalar_type()) return std::nullopt;
  if (!AreForKernels({gate, up}) || gate.sizes() != up.sizes()) return std::nullopt;
  at::Tensor y;
  {
    const at::NoGradGuard no_grad;
    y = at::empty_like(gate);
  }
  LaunchOn(gate, *launcher,
           {.name = "swiglu",
            .element = *element,
            .grid_x = BlocksFor((gate.numel() + kPack - 1) / kPack),
            .block = kThreads,
            .arguments = {Memory(gate), Memory(up), Memory(y), gate.numel()}});
  return Recorded(y, gate.requires_grad() || up.requires_grad(), [&] {
    return std::shared_ptr<SwigluNode>(new SwigluNode(gate, up), torch::autograd::deleteNode);
  });
}

std::optional<at::Tensor> RotateByKernel(const at::Tensor& x, double theta,
                                         int64_t first_position) {
  const bool is_small = x.dim() == 4 && x.size(2) <= std::numeric_limits<int>::max() / 2;
  if (!is_small || !KernelsFor(x) || !KernelElementOf(x.scalar_type())) return std::nullopt;
  if (!IsForRotation(x)) return std::nullopt;
  const Rotation rotation = {theta, first_position};
  at::Tensor y;
  {
    const at::NoGradGuard no_grad;
    y = Rotated(x, rotation, 1.0F);
  }
  return Recorded(y, x.requires_grad(), [&] {
    return std::shared_ptr<RotateNode>(new RotateNode(x, rotation), torch::autograd::deleteNode);
  });
}

}  // namespace strata
