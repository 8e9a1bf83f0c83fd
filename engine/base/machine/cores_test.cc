// The tests write their own copies of the system's files into a temporary folder.
#include "engine/base/machine/cores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

namespace strata {
namespace {

class CoreLimitTest : public ::testing::Test {
 protected:
  CoreLimitTest() { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  const std::string root_ = ::testing::TempDir() + "/cores";
};

TEST_F(CoreLimitTest, WhatIsNotToldIsNoLimit) {
  EXPECT_EQ(CoreLimit(root_), kNoCoreLimit);
  Write("/proc/self/cgroup", "0::/jobs/mine\n");
  Write("/sys/fs/cgroup/jobs/mine/cpu.max", "max 100000\n");
  EXPECT_EQ(CoreLimit(root_), kNoCoreLimit);
}

TEST_F(CoreLimitTest, TheSmallestGroupCountsRoundedUp) {
  Write("/proc/self/cgroup", "1:name=systemd:/other\n0::/jobs/mine\n");
  Write("/sys/fs/cgroup/jobs/cpu.max", "800000 100000\n");
  EXPECT_EQ(CoreLimit(root_), 8);
  Write("/sys/fs/cgroup/jobs/mine/cpu.max", "250000 100000\n");
  EXPECT_EQ(CoreLimit(root_), 3);
  Write("/sys/fs/cgroup/cpu.max", "5000 100000\n");  // the group that a container sees
  EXPECT_EQ(CoreLimit(root_), 1);
}

TEST_F(CoreLimitTest, OfGroupsOfVersion1) {
  Write("/proc/self/cgroup", "5:cpuset:/other\n4:cpu,cpuacct:/jobs/mine\n");
  Write("/sys/fs/cgroup/cpu/jobs/mine/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/jobs/mine/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CoreLimit(root_), kNoCoreLimit);
  Write("/sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us", "200000\n");
  Write("/sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CoreLimit(root_), 2);
}

TEST(MachineCoresTest, AreNoMoreThanTheMachines) {
  EXPECT_GE(MachineCores(), 1);
  EXPECT_LE(MachineCores(), std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace strata
