// CPU quotas are read from /sys/fs/cgroup: cpu.max of version 2, cpu.cfs_quota_us and
// cpu.cfs_period_us of version 1. The limit is the smallest of all groups that the process is in.
#include "engine/base/machine/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <thread>

#include "engine/base/machine/memory.h"

namespace strata {
namespace {

/// The cores that a quota is worth, rounded up: `quota` microseconds of processor time in each
/// `period`. A quota of 0 or less means no limit: -1 in version 1, "max" in version 2, which is
/// read as 0, and a missing file.
int CoresOf(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return kNoCoreLimit;
  const int64_t cores = (quota - 1) / period + 1;
  return static_cast<int>(std::min<int64_t>(cores, kNoCoreLimit));
}

/// Reads the numbers at the beginning of a file. Numbers that are missing there, or whose file is
/// missing, become 0 or keep their value.
template <class... Numbers>
void ReadNumbers(const std::string& path, Numbers&... numbers) {
  std::ifstream file(path);
  (file >> ... >> numbers);
}

int CountCores() {
  cpu_set_t set;
  int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) cores = std::min(cores, CPU_COUNT(&set));
  return std::clamp(CoreLimit(), 1, std::max(1, cores));
}

}  // namespace

int MachineCores() {
  static const int cores = CountCores();
  return cores;
}

int CoreLimit(const std::string& root) {
  int limit = kNoCoreLimit;
  for (const std::string& folder : GroupFolders(root)) {
    int64_t quota = 0, period = 0;
    ReadNumbers(folder + "/cpu.max", quota, period);
    limit = std::min(limit, CoresOf(quota, period));
  }
  for (const std::string& folder : GroupFolders(root, "cpu")) {
    int64_t quota = 0, period = 0;
    ReadNumbers(folder + "/cpu.cfs_quota_us", quota);
    ReadNumbers(folder + "/cpu.cfs_period_us", period);
    limit = std::min(limit, CoresOf(quota, period));
  }
  return limit;
}

}  // namespace strata
