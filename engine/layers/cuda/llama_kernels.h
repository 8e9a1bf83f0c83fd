// The gate of SwiGLU and rotary positions by our kernels (swiglu.cu, rotary.cu): one launch each,
// forward and backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace strata {

/// silu(gate) * up, differentiable once; none if the kernels do not take these tensors.
std::optional<at::Tensor> SwigluByKernel(const at::Tensor& gate, const at::Tensor& up);

/// The same, where gate and up are the halves of each row of one tensor.
std::optional<at::Tensor> SwigluOfHalvesByKernel(const at::Tensor& halves);

/// x (N, H, T, D), its tokens turned as at the positions from `first_position` on; differentiable
/// once; none if the kernel does not take the tensor.
std::optional<at::Tensor> RotateByKernel(const at::Tensor& x, double theta, int64_t first_position);

}  // namespace strata
