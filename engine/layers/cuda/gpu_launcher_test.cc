// Tests what is asked of CUDA's driver, with one that writes it down (fake_cuda.cc).
#include "engine/layers/cuda/gpu_launcher.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "engine/base/error.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

std::string Calls() {
  using Entry = const char* (*)();
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Entry>(dlsym(library, "fake_cuda_calls"))();
}

void Launch(int device, KernelElement element, unsigned blocks = 3) {
  float* const memory = reinterpret_cast<float*>(intptr_t{64});
  GpuLauncher().Launch({.name = "swiglu",
                        .element = element,
                        .grid_x = blocks,
                        .block = 256,
                        .arguments = {{memory, 4}, {memory, 4}, {memory, 4}, int64_t{1} << 40}},
                       device, reinterpret_cast<void*>(intptr_t{7}));
}

class GpuLauncherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("STRATA_CACHE", (std::string(std::getenv("TEST_TMPDIR")) + "/cache").c_str(), 1);
  }
};

TEST_F(GpuLauncherTest, LoadsAFileOnceAndSetsTheContextOfEachThread) {
  EXPECT_THAT(DescribeGpuKernels(0), HasSubstr("(sm_90)"));
  EXPECT_THAT(DescribeGpuKernels(0), HasSubstr("; 0 of 21 files are compiled"));
  const std::string launch = "swiglu 3x1x256 stream 7 arguments 64 1099511627776\n";
  Launch(0, KernelElement::kBf16);
  std::string wanted = "retain 0\nset 100\nload in 100\n" + launch;
  EXPECT_EQ(Calls(), wanted);
  Launch(0, KernelElement::kBf16);
  EXPECT_EQ(Calls(), wanted += launch);
  std::thread([] { Launch(0, KernelElement::kBf16); }).join();
  EXPECT_EQ(Calls(), wanted += "set 100\n" + launch);
  Launch(1, KernelElement::kBf16);
  EXPECT_EQ(Calls(), wanted += "retain 1\nset 101\nload in 101\n" + launch);
  Launch(0, KernelElement::kFp16);
  EXPECT_EQ(Calls(), wanted += "set 100\nload in 100\n" + launch);
  EXPECT_THAT(DescribeGpuKernels(0), HasSubstr("12 for cuda:0 (sm_90) by NVRTC 13."));
  EXPECT_THAT(DescribeGpuKernels(0), HasSubstr("; 2 of 21 files are compiled"));
}

TEST_F(GpuLauncherTest, AnErrorSaysWhatFailed) {
  try {
    Launch(0, KernelElement::kBf16, /*blocks=*/0);
    FAIL() << "launched";
  } catch (const WorldError& error) {
    EXPECT_STREQ(error.what(), "CUDA: cannot launch swiglu: out of memory (2)");
  }
  EXPECT_THROW(HasGpuForKernels(2), WorldError);
}

TEST_F(GpuLauncherTest, OlderGpusHaveNone) {
  EXPECT_TRUE(HasGpuForKernels(0));
  ::setenv("FAKE_CAPABILITY", "75", 1);
  EXPECT_FALSE(HasGpuForKernels(0));
  EXPECT_EQ(DescribeGpuKernels(0), "none for cuda:0 (sm_75): they need sm_80 or later");
  ::unsetenv("FAKE_CAPABILITY");
}

}  // namespace
}  // namespace strata
