// Machine: what `strata doctor` reports about this machine and the limits of this process.
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
  std::string problem;  ///< what is missing or too small, and what to do; "" = no problem
};

/// The findings about cores, memory, shared memory, open files, processes, GPUs and cache folder.
std::vector<Finding> MachineFindings();

/// The findings about LibTorch, its CPU libraries, Gloo, and CUDA with NCCL and devices. `engine`
/// is the result of EngineApi::Doctor(), `gpus` the number of GPUs of this machine.
std::vector<Finding> EngineFindings(const Value& engine, int gpus);

/// All findings as aligned lines, followed by the problems.
std::string FindingsText(const std::vector<Finding>& findings);

/// [{"name", "text", "problem"}, ...].
Value FindingsValue(const std::vector<Finding>& findings);

}  // namespace strata::launcher
