// Counts the GPUs of this machine without starting CUDA, since a process that has started CUDA can
// no longer fork ranks.
#pragma once

#include <string>

namespace strata {

/// The number of NVIDIA devices in the folder `dev` (nvidia0, nvidia1, ...). If
/// $CUDA_VISIBLE_DEVICES is set, the number of devices that it lists is the upper limit. It is read
/// as CUDA reads it: "" or "-1" hides all GPUs.
int GpuCount(const std::string& dev = "/dev");

/// True if each of this machine's `ranks` has a GPU of its own. This is also true if
/// $CUDA_VISIBLE_DEVICES shows this process exactly one of several devices: then an outside
/// launcher (Slurm's --gpus-per-task=1) gives each rank one GPU, which each rank sees as its first.
bool HasGpuEach(int ranks, const std::string& dev = "/dev");

}  // namespace strata
