// How many GPUs this machine has, found without starting CUDA. A process that has started CUDA
// cannot fork ranks any more.
#pragma once

#include <string>

namespace strata {

/// The number of NVIDIA devices in the folder `dev` (nvidia0, nvidia1, ...). If
/// $CUDA_VISIBLE_DEVICES is set, the number of devices that it lists is the upper limit. It is read
/// as CUDA reads it: "" or "-1" hides all GPUs.
int GpuCount(const std::string& dev = "/dev");

/// Whether each of this machine's `ranks` has a GPU of its own. Where $CUDA_VISIBLE_DEVICES shows
/// this process one of several devices, it has: an outside launcher (Slurm's --gpus-per-task=1)
/// gives each rank one, which each knows as its first.
bool HasGpuEach(int ranks, const std::string& dev = "/dev");

}  // namespace strata
