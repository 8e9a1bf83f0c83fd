// The KernelLauncher for GPUs. It uses CUDA's driver, which is loaded at the first call, so it
// needs nothing of CUDA where it is built.
#pragma once

#include <string>

#include "engine/layers/cuda/kernel_call.h"

namespace strata {

/// Compiles a file of kernels when the first of them is launched (gpu_compiler.h). Functions throw
/// WorldError with what CUDA says.
KernelLauncher& GpuLauncher();

/// The architecture of a GPU: "sm_90".
std::string ArchitectureOf(int device);

/// True if the GPU has the instructions that the kernels use: from compute capability 8.0 on, that
/// of an A100.
bool HasGpuForKernels(int device);

/// A line for people: for which architecture kernels are compiled, by which NVRTC, and how many of
/// the files are in the cache folder.
std::string DescribeGpuKernels(int device);

}  // namespace strata
