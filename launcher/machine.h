// Machine: what the operating system says of this machine and of this process's limits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/value.h"

namespace strata::launcher {

/// One line of `strata doctor`.
struct Finding {
  std::string name;     ///< "memory"
  std::string text;     ///< "15.6 GiB, 12.3 GiB of it free"
  std::string problem;  ///< what is missing or too small, and what to do; "" = nothing
};

/// Cores, memory, shared memory, open files, processes, GPUs, cache folder.
std::vector<Finding> MachineFindings();

/// From what EngineApi::Doctor() gives: LibTorch, its CPU libraries, Gloo, CUDA with NCCL and
/// devices.
std::vector<Finding> EngineFindings(const Value& engine, int gpus);

/// Aligned lines, then the problems, if there are any.
std::string FindingsText(const std::vector<Finding>& findings);

/// [{"name", "text", "problem"}, ...].
Value FindingsValue(const std::vector<Finding>& findings);

}  // namespace strata::launcher
