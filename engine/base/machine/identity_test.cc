#include "engine/base/machine/identity.h"

#include <gtest/gtest.h>

#include <fstream>

namespace strata {
namespace {

TEST(IdentityTest, IsWhatTheKernelSays) {
  std::string name;
  std::ifstream("/proc/sys/kernel/hostname") >> name;
  EXPECT_EQ(HostName(), name);
  EXPECT_EQ(BootId().size(), 36u) << BootId();
  EXPECT_EQ(BootId(), BootId());
  std::ifstream processors("/proc/cpuinfo");
  std::string line;
  while (std::getline(processors, line) && !line.starts_with("model name")) continue;
  EXPECT_TRUE(line.ends_with(ProcessorName())) << ProcessorName();
}

}  // namespace
}  // namespace strata
