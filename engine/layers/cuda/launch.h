// Launches our kernels on tensors. A caller asks KernelsFor() and calls ATen where it gives none.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <optional>
#include <string>

#include "engine/layers/cuda/kernel_call.h"

namespace strata {

/// The launcher for tensors on a device of x's. Null: ATen's kernels run, because the device is no
/// GPU, the GPU is older than the kernels' instructions, or $STRATA_KERNELS is "aten". Throws
/// ConfigError for another value of the variable than "aten" and "own", the default.
KernelLauncher* KernelsFor(const at::Tensor& x);

/// For tests: from now on, kernels for devices of this type are launched by `launcher`. Null: none.
void SetKernelLauncher(c10::DeviceType type, KernelLauncher* launcher);

/// The Element of kernels on tensors of this type; none for types that they do not take.
std::optional<KernelElement> KernelElementOf(at::ScalarType type);

/// True if kernels may read and write the tensors by vectors: they are defined, contiguous, have
/// elements, and begin at multiples of 16 bytes.
bool AreForKernels(std::initializer_list<at::Tensor> tensors);

/// The tensor, or a copy that AreForKernels(). A gradient may be any view.
at::Tensor ForKernels(const at::Tensor& tensor);

/// The memory from a tensor's first element to its last as an argument; an undefined one is null.
KernelArgument Memory(const at::Tensor& tensor);

/// Launches the call on x's device, on its current stream.
void LaunchOn(const at::Tensor& x, KernelLauncher& launcher, const KernelCall& call);

/// A line for `strata doctor` about the kernels for a GPU (DescribeGpuKernels()), or that
/// $STRATA_KERNELS has turned them off.
std::string DescribeKernels(int device);

}  // namespace strata
