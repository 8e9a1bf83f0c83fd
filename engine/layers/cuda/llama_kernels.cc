#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/cuda/llama_kernels.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

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

/// silu(gate) up. An undefined `up`: both are the halves of gate's rows.
struct SwigluCall {
  at::Tensor gate, up = {};

  int64_t count() const { return up.defined() ? gate.numel() : gate.numel() / 2; }
  /// Launches a kernel with `arguments`, followed by the sizes and layout of the matrices.
  void Launch(const char* kernel, std::vector<KernelArgument> arguments) const {
    const int64_t stride = up.defined() ? gate.numel() : gate.size(-1);
    const int64_t width = up.defined() ? stride : stride / 2;
    arguments.insert(arguments.end(), {count(), width, stride,
                                       static_cast<int>(up.defined() || width % kPack == 0)});
    LaunchOn(gate, *KernelsFor(gate),
             {.name = kernel,
              .element = *KernelElementOf(gate.scalar_type()),
              .grid_x = BlocksFor((count() + kPack - 1) / kPack),
              .block = kThreads,
              .arguments = std::move(arguments)});
  }
};

class SwigluNode : public torch::autograd::Node {
 public:
  explicit SwigluNode(const SwigluCall& call)
      : torch::autograd::Node(torch::autograd::collect_next_edges(call.gate, call.up)),
        gate_(call.gate, /*is_output=*/false) {
    if (call.up.defined()) up_ = SavedVariable(call.up, /*is_output=*/false);
  }

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor()};
    TORCH_CHECK(!at::GradMode::is_enabled(), "SwiGLU's gradient has no gradient on CUDA");
    const SwigluCall call = {gate_.unpack(), up_.unpack()};
    const at::AutoDispatchBelowADInplaceOrView nothing_is_recorded;
    const at::Tensor dy = ForKernels(grads[0]);
    at::Tensor dgate = at::empty_like(call.gate), dup;
    if (call.up.defined()) dup = at::empty_like(call.up);
    call.Launch("swiglu_backward",
                {Memory(dy), Memory(call.gate), Memory(call.up), Memory(dgate), Memory(dup)});
    return {std::move(dgate), std::move(dup)};
  }
  void release_variables() override {
    gate_.reset_data();
    up_.reset_data();
  }

 private:
  SavedVariable gate_, up_;
};

at::Tensor Swiglu(const SwigluCall& call) {
  at::Tensor y;
  {
    const at::NoGradGuard no_grad;
    std::vector<int64_t> sizes = call.gate.sizes().vec();
    if (!call.up.defined()) sizes.back() /= 2;
    y = at::empty(sizes, call.gate.options());
  }
  call.Launch("swiglu", {Memory(call.gate), Memory(call.up), Memory(y)});
  const bool learns = call.gate.requires_grad() || (call.up.defined() && call.up.requires_grad());
  return Recorded(y, learns, [&] {
    return std::shared_ptr<SwigluNode>(new SwigluNode(call), torch::autograd::deleteNode);
  });
}

// ---- Rotary positions

struct Rotation {
  double theta;
  int64_t first_position;
};

/// True if the kernel takes x: the elements of a head's token lie side by side, and vectors are
/// aligned. Heads may be a part of a tensor.
bool IsForRotation(const at::Tensor& x) {
  constexpr uintptr_t kVector = 16;
  if (x.dim() != 4 || x.numel() == 0 || x.size(3) % 2 != 0 || x.stride(3) != 1) return false;
  if (x.size(3) / 2 % kPack != 0) return true;
  const bool begins_so = reinterpret_cast<uintptr_t>(x.const_data_ptr()) % kVector == 0;
  return begins_so && x.stride(0) % kPack == 0 && x.stride(1) % kPack == 0 &&
         x.stride(2) % kPack == 0;
}

/// Memory for the result: x's strides, or if x has gaps, the heads of a token side by side.
at::Tensor EmptyFor(const at::Tensor& x) {
  if (x.is_non_overlapping_and_dense()) return at::empty_like(x);
  return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

at::Tensor Rotated(const at::Tensor& x, const Rotation& rotation, float sign) {
  constexpr int64_t kHeadsOfThread = 4;
  at::Tensor y = EmptyFor(x);
  const auto size = [&](int dim) { return static_cast<int>(x.size(dim)); };
  const int64_t packs = (x.size(3) / 2 + kPack - 1) / kPack;
  LaunchOn(x, *KernelsFor(x),
           {.name = "rotate",
            .element = *KernelElementOf(x.scalar_type()),
            .grid_x = BlocksFor(x.size(0) * x.size(2) * packs),
            .grid_y = static_cast<unsigned>((x.size(1) + kHeadsOfThread - 1) / kHeadsOfThread),
            .block = kThreads,
            .arguments = {Memory(x), Memory(y), size(0), size(1), size(2), size(3), x.stride(0),
                          x.stride(1), x.stride(2), y.stride(0), y.stride(1), y.stride(2),
                          static_cast<int>(rotation.first_position),
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
  if (!KernelsFor(gate) || !KernelElementOf(gate.scalar_type())) return std::nullopt;
  if (up.scalar_type() != gate.scalar_type() || !AreForKernels({gate, up})) return std::nullopt;
  if (gate.sizes() != up.sizes()) return std::nullopt;
  return Swiglu({gate, up});
}

std::optional<at::Tensor> SwigluOfHalvesByKernel(const at::Tensor& halves) {
  if (!KernelsFor(halves) || !KernelElementOf(halves.scalar_type())) return std::nullopt;
  if (!AreForKernels({halves}) || halves.dim() == 0 || halves.size(-1) % 2 != 0) {
    return std::nullopt;
  }
  return Swiglu({halves});
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
