#include "engine/base/machine/gpu.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace strata {
namespace {

class GpuCountTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("CUDA_VISIBLE_DEVICES");
    dev_ = testing::TempDir() + "/dev";
    std::filesystem::remove_all(dev_);
    std::filesystem::create_directories(dev_);
    for (const char* name : {"nvidia0", "nvidia1", "nvidia12", "nvidiactl", "nvidia-uvm", "null"}) {
      std::ofstream(dev_ + "/" + name) << "";
    }
  }
  void TearDown() override { unsetenv("CUDA_VISIBLE_DEVICES"); }
  int Visible(const char* visible) {
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    return GpuCount(dev_);
  }
  std::string dev_;
};

TEST_F(GpuCountTest, CountsDevicesOnly) {
  EXPECT_EQ(GpuCount(dev_), 3);
  EXPECT_EQ(GpuCount(dev_ + "/none"), 0);
}

TEST_F(GpuCountTest, CudaVisibleDevicesHidesAsCudaDoes) {
  EXPECT_EQ(Visible(""), 0);
  EXPECT_EQ(Visible("-1"), 0);
  EXPECT_EQ(Visible("1"), 1);
  EXPECT_EQ(Visible("0,2"), 2);
  EXPECT_EQ(Visible("0,-1,1"), 1) << "what follows an invalid entry is ignored";
  EXPECT_EQ(Visible("0,1,2,3,4"), 3) << "no more than there are";
  EXPECT_EQ(Visible("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"), 1);
}

TEST_F(GpuCountTest, OneOfSeveralIsTheRanksOwn) {
  EXPECT_TRUE(HasGpuEach(3, dev_));
  EXPECT_FALSE(HasGpuEach(4, dev_));
  Visible("2");
  EXPECT_TRUE(HasGpuEach(4, dev_));
  Visible("0,2");
  EXPECT_TRUE(HasGpuEach(2, dev_));
  EXPECT_FALSE(HasGpuEach(3, dev_));
  for (const char* other : {"/nvidia1", "/nvidia12"}) std::filesystem::remove(dev_ + other);
  Visible("0");
  EXPECT_FALSE(HasGpuEach(2, dev_)) << "there is one only, for all ranks";
}

}  // namespace
}  // namespace strata
