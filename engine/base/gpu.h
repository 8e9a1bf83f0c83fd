// Which GPUs this machine has, without starting CUDA: a process that has started CUDA cannot fork.
#pragma once

#include <string>

namespace strata {

/// NVIDIA devices below `dev` (nvidia0, nvidia1, ...), but no more than $CUDA_VISIBLE_DEVICES
/// names: "" or "-1" hide all, as CUDA itself reads it.
int GpuCount(const std::string& dev = "/dev");

}  // namespace strata
