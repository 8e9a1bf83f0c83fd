#include "engine/base/machine/identity.h"

#include <unistd.h>

#include <array>
#include <fstream>

namespace strata {

std::string HostName() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    return begin == line.npos ? "" : line.substr(begin);
  }
  return "";
}

std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace strata
