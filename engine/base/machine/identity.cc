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

std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace strata
