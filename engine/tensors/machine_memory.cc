#include "engine/tensors/machine_memory.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace strata {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

int64_t NumberIn(const std::string& path) {
  int64_t number = 0;
  std::ifstream file(path);  // "max" where there is no limit
  return file >> number ? number : kNoLimit;
}

/// The number behind a name in a file of such lines; `otherwise` where there is none.
int64_t NumberBehind(const std::string& path, const std::string& name, int64_t otherwise) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    int64_t number = 0;
    if (word == name && file >> number) return number;
  }
  return otherwise;
}

/// The least that `of_group(folder)` gives for the process's control group and those that it is in.
template <class OfGroup>
int64_t LeastOfGroups(const OfGroup& of_group) {
  std::string line, group;
  for (std::ifstream file("/proc/self/cgroup"); std::getline(file, line);) {
    if (line.starts_with("0::/")) group = line.substr(3);
  }
  for (int64_t least = kNoLimit;; group.resize(group.rfind('/'))) {
    least = std::min<int64_t>(least, of_group("/sys/fs/cgroup" + group));
    if (group.find('/') == group.npos) return least;
  }
}

/// What groups let the process have of the memory and of the `swap` bytes beside it.
int64_t GroupLimit(int64_t swap) {
  return LeastOfGroups([swap](const std::string& folder) {
    const int64_t memory = NumberIn(folder + "/memory.max");
    const int64_t swapped = std::min(swap, NumberIn(folder + "/memory.swap.max"));
    return memory < kNoLimit - swapped ? memory + swapped : kNoLimit;
  });
}

/// Files that the system keeps in memory, and could let go of, are in a group's use.
int64_t LeftInGroups() {
  return LeastOfGroups([](const std::string& folder) {
    const int64_t memory = NumberIn(folder + "/memory.max");
    const int64_t used = NumberIn(folder + "/memory.current");
    if (memory == kNoLimit || used == kNoLimit) return kNoLimit;
    return memory - used + NumberBehind(folder + "/memory.stat", "inactive_file", 0);
  });
}

}  // namespace

int64_t MostMemory() {
  static const int64_t most = [] {
    struct sysinfo info = {};
    if (::sysinfo(&info) != 0) return GroupLimit(0);
    const auto memory = static_cast<int64_t>(info.totalram * info.mem_unit);
    const auto swap = static_cast<int64_t>(info.totalswap * info.mem_unit);
    return std::min(memory + swap, GroupLimit(swap));
  }();
  return most;
}

int64_t AvailableMemory() {
  constexpr int64_t kUnit = 1024;
  const int64_t units = NumberBehind("/proc/meminfo", "MemAvailable:", kNoLimit / kUnit);
  return std::min(units * kUnit, LeftInGroups());
}

}  // namespace strata
