// The memory of this machine, and how much of it the control groups (containers) of this process
// allow.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace strata {

/// All members are in bytes. kNoLimit also stands for numbers that the system does not tell.
struct MachineMemory {
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  int64_t total = 0;         ///< the machine's memory
  int64_t limit = kNoLimit;  ///< the lowest limit of the control groups
  int64_t most = kNoLimit;   ///< the most that the processes here may use at once, including swap
  /// The memory that they can still use before the system swaps or kills a process.
  int64_t available = kNoLimit;
};

/// The folders of the process's control group and of all groups that contain it, innermost first.
/// `controller` is "" for groups of version 2, or the name of a controller of version 1 ("cpu").
/// Some folders may not exist: a container may see only its own group, as the outermost one. `root`
/// is put in front of system paths, for tests.
std::vector<std::string> GroupFolders(const std::string& root, const std::string& controller = "");

/// Reads the numbers as they are now. `root` is put in front of system paths, for tests.
MachineMemory ReadMachineMemory(const std::string& root = "");

}  // namespace strata
