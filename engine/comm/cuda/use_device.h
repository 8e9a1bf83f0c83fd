// The device on which a rank computes.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace strata {

/// Makes a device the calling thread's own: the CPU, or of the accelerators called `name` ("cuda")
/// the one whose turn it is, since the ranks of a machine take them in turn. A rank that sees one
/// only takes that. Loads the CUDA library for "cuda". Throws WorldError when there is none.
c10::Device UseDevice(const std::string& name, int local_rank);
/// The same of a type that is registered already.
c10::Device UseDevice(c10::DeviceType type, int local_rank);

/// Loads the CUDA library where this process sees a GPU. To be called before the first operator of
/// a process that may come to train on one: LibTorch looks for CUDA once, in a first convolution or
/// backward on the CPU, too, and takes it for absent from then on if it is not loaded. Where it
/// cannot be loaded nothing happens; UseDevice() says why when a GPU is wanted.
void LoadCudaBesideGpus();

/// How many of the accelerators called `name` this process can use. Loads the CUDA library for
/// "cuda"; throws WorldError when that cannot be loaded.
int DeviceCount(const std::string& name);

}  // namespace strata
