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
}

}  // namespace
}  // namespace strata
