// The tests write their own copies of the system's files into a temporary folder.
#include "engine/base/machine/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace strata {
namespace {

constexpr int64_t kMiB = 1 << 20, kNoLimit = MachineMemory::kNoLimit;

class MachineMemoryTest : public ::testing::Test {
 protected:
  MachineMemoryTest() { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  /// Writes the files of a machine with 64 MiB of memory, 16 of them available, and 8 MiB of swap.
  void WriteMachine() const {
    Write("/proc/meminfo",
          "MemTotal:       65536 kB\nMemFree:         1024 kB\nMemAvailable:   16384 kB\n"
          "SwapTotal:       8192 kB\n");
  }
  MachineMemory Read() const { return ReadMachineMemory(root_); }

  const std::string root_ = ::testing::TempDir() + "/machine";
};

TEST_F(MachineMemoryTest, OfAMachineWithoutGroups) {
  WriteMachine();
  const MachineMemory memory = Read();
  EXPECT_EQ(memory.total, 64 * kMiB);
  EXPECT_EQ(memory.limit, kNoLimit);
  EXPECT_EQ(memory.most, 72 * kMiB);
  EXPECT_EQ(memory.available, 16 * kMiB);
}

TEST_F(MachineMemoryTest, AGroupLimitsMemoryAndSwap) {
  WriteMachine();
  Write("/proc/self/cgroup", "1:name=systemd:/other\n0::/jobs/mine\n");
  const std::string group = "/sys/fs/cgroup/jobs/mine";
  Write(group + "/memory.max", "33554432\n");
  Write(group + "/memory.swap.max", "max\n");
  EXPECT_EQ(Read().limit, 32 * kMiB);
  EXPECT_EQ(Read().most, 40 * kMiB) << "with the machine's swap";
  EXPECT_EQ(Read().available, 16 * kMiB) << "nothing says what the group uses";
  Write(group + "/memory.swap.max", "0\n");
  Write(group + "/memory.current", "25165824\n");
  EXPECT_EQ(Read().most, 32 * kMiB);
  EXPECT_EQ(Read().available, 8 * kMiB);
  Write(group + "/memory.stat", "anon 20971520\ninactive_file 4194304\nactive_file 0\n");
  EXPECT_EQ(Read().available, 12 * kMiB) << "the system lets go of files";
  Write(group + "/memory.current", "41943040\n");
  EXPECT_EQ(Read().available, 0);
}

TEST_F(MachineMemoryTest, OuterGroupsCount) {
  WriteMachine();
  Write("/proc/self/cgroup", "0::/jobs/mine\n");
  Write("/sys/fs/cgroup/jobs/mine/memory.max", "max\n");
  Write("/sys/fs/cgroup/jobs/memory.max", "10485760\n");
  EXPECT_EQ(Read().limit, 10 * kMiB);
  Write("/sys/fs/cgroup/memory.max", "5242880\n");  // the group that a container sees
  EXPECT_EQ(Read().limit, 5 * kMiB);
}

TEST_F(MachineMemoryTest, WhatIsNotToldIsNoLimit) {
  const MachineMemory memory = Read();
  EXPECT_EQ(memory.total, 0);
  EXPECT_EQ(memory.most, kNoLimit);
  EXPECT_EQ(memory.available, kNoLimit);
}

TEST(MachineMemoryHere, IsTold) {
  const MachineMemory memory = ReadMachineMemory();
  EXPECT_GT(memory.total, 0);
  EXPECT_GE(memory.most, std::min(memory.total, memory.limit));
  EXPECT_GT(memory.available, 0);
  EXPECT_LE(memory.available, memory.total);
}

}  // namespace
}  // namespace strata
