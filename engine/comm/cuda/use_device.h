// Chooses the device on which a rank computes.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace strata {

/// Makes a device the current one of the calling thread and returns it. For `name` = "cpu" it is
/// the CPU. For an accelerator ("cuda") it is number local_rank modulo the number of devices, so
/// the ranks of a machine share its devices in turn. Loads the CUDA library for "cuda". Throws
/// WorldError when there is no such device or it cannot be used.
c10::Device UseDevice(const std::string& name, int local_rank);
/// Does the same for a device type that is already registered with ATen.
c10::Device UseDevice(c10::DeviceType type, int local_rank);

/// Loads the CUDA library if this process sees a GPU. Call it before the first operator of a
/// process that may later train on a GPU: LibTorch looks for CUDA only once, in the first
/// convolution or backward, even on the CPU, and if the library is not loaded by then it treats
/// CUDA as absent from then on. Does nothing if the library cannot be loaded; UseDevice() reports
/// the reason when a GPU is wanted.
void LoadCudaBesideGpus();

/// The number of accelerators called `name` that this process can use. Loads the CUDA library for
/// "cuda"; throws WorldError when that cannot be loaded.
int DeviceCount(const std::string& name);

}  // namespace strata
