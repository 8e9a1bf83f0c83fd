// The numbers come from /proc and, for control groups of version 2, from /sys/fs/cgroup.
#include "engine/base/machine/memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

namespace strata {
namespace {

constexpr int64_t kNoLimit = MachineMemory::kNoLimit;

int64_t NumberIn(const std::string& path) {
  int64_t number = 0;
  std::ifstream file(path);  // the file holds "max" if there is no limit
  return file >> number ? number : kNoLimit;
}

/// The number that follows `name` in a file of lines "NAME NUMBER"; none if the name does not
/// occur.
std::optional<int64_t> NumberBehind(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    int64_t number = 0;
    if (word == name && file >> number) return number;
  }
  return std::nullopt;
}

/// True if a list such as "cpu,cpuacct" contains `name`. The list of a version 2 group is empty and
/// matches the name "".
bool Has(const std::string& list, const std::string& name) {
  std::istringstream names(list);
  for (std::string one; std::getline(names, one, ',');) {
    if (one == name) return true;
  }
  return list == name;
}

}  // namespace

std::vector<std::string> GroupFolders(const std::string& root, const std::string& controller) {
  std::string group;
  std::ifstream file(root + "/proc/self/cgroup");  // lines such as "4:cpu,cpuacct:/jobs/mine"
  for (std::string number, controllers, path; std::getline(file, number, ':') &&
                                              std::getline(file, controllers, ':') &&
                                              std::getline(file, path);) {
    if (path.starts_with("/") && Has(controllers, controller)) group = path;
  }
  std::string top = root + "/sys/fs/cgroup";
  if (!controller.empty()) top += "/" + controller;
  std::vector<std::string> folders;
  for (;; group.resize(group.rfind('/'))) {
    folders.push_back(top + group);
    if (group.empty()) return folders;
  }
}

MachineMemory ReadMachineMemory(const std::string& root) {
  const auto info = [&](const char* name, int64_t otherwise) {
    const std::optional<int64_t> kibibytes = NumberBehind(root + "/proc/meminfo", name);
    return kibibytes ? 1024 * *kibibytes : otherwise;
  };
  MachineMemory memory;
  memory.total = info("MemTotal:", 0);
  memory.available = info("MemAvailable:", kNoLimit);
  const int64_t swap = info("SwapTotal:", 0);
  if (memory.total > 0) memory.most = memory.total + swap;
  for (const std::string& folder : GroupFolders(root)) {
    const int64_t limit = NumberIn(folder + "/memory.max");
    if (limit == kNoLimit) continue;
    memory.limit = std::min(memory.limit, limit);
    const int64_t swapped = std::min(swap, NumberIn(folder + "/memory.swap.max"));
    memory.most = std::min(memory.most, std::min(limit, kNoLimit - swapped) + swapped);
    const int64_t used = NumberIn(folder + "/memory.current");
    if (used == kNoLimit) continue;
    // memory.current counts files that the system caches in memory and could drop, so they count as
    // available here.
    const int64_t files = NumberBehind(folder + "/memory.stat", "inactive_file").value_or(0);
    memory.available = std::min(memory.available, std::max<int64_t>(0, limit - used + files));
  }
  return memory;
}

}  // namespace strata
