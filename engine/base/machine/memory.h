// What the machine has of memory, and what the control groups (containers) that the process is in
// let it have.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace strata {

/// In bytes. kNoLimit also stands for what the system does not tell.
struct MachineMemory {
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  int64_t total = 0;         ///< the machine's memory
  int64_t limit = kNoLimit;  ///< of the groups
  int64_t most = kNoLimit;   ///< what processes here may have at once, swapped memory too
  /// What they may still take before something is swapped or killed.
  int64_t available = kNoLimit;
};

/// The folders of the process's control group and of those that it is in. `controller`: "" for
/// groups of version 2, or the name of one of version 1. Not all of them need to exist: a container
/// may see its own group alone, as the outermost. `root`: of the file system, for tests.
std::vector<std::string> GroupFolders(const std::string& root, const std::string& controller = "");

/// As it is now. `root`: of the file system, for tests.
MachineMemory ReadMachineMemory(const std::string& root = "");

}  // namespace strata
