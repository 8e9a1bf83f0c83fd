// Compiles all kernels for three GPUs, which needs none of them, and tests the cache of the
// results.
#include "engine/layers/cuda/gpu_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/base/error.h"
#include "engine/base/testing.h"
#include "engine/layers/cuda/kernel_sources.h"

namespace strata {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

TEST(GpuCompilerTest, EachFileIsCompiledForEachGpuAndHasItsKernels) {
  for (const char* const architecture : {"sm_80", "sm_90", "sm_100"}) {
    for (const std::string& file : KernelFiles()) {
      for (const KernelElement element : kKernelElements) {
        const std::string cubin = CompileForGpu(KernelSource(file, element), architecture);
        for (const KernelEntry& kernel : Kernels()) {
          if (kernel.file != file) continue;
          EXPECT_THAT(cubin, HasSubstr(std::string(".text.") + kernel.name + '\0')) << file;
        }
      }
    }
  }
}

TEST(GpuCompilerTest, AnErrorHasTheCompilersMessages) {
  try {
    CompileForGpu("extern \"C\" __global__ void k(float* x) { x[0] = y; }", "sm_90");
    FAIL() << "compiled";
  } catch (const WorldError& error) {
    EXPECT_THAT(error.what(), HasSubstr("identifier \"y\" is undefined"));
    EXPECT_THAT(error.what(), HasSubstr("for sm_90"));
    EXPECT_THAT(error.what(), HasSubstr("STRATA_KERNELS=aten"));
  }
  EXPECT_THROW(CompileForGpu("", "sm_3"), WorldError);
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(GpuCompilerTest, WhatIsCompiledIsKept) {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/cache";
  ::setenv("STRATA_CACHE", folder.c_str(), 1);
  const std::string source = "extern \"C\" __global__ void k(float* x) { x[0] = 1; }";
  EXPECT_FALSE(IsCompiledForGpu(source, "sm_90"));
  const std::string cubin = CompiledForGpu(source, "sm_90");
  EXPECT_TRUE(IsCompiledForGpu(source, "sm_90"));
  EXPECT_FALSE(IsCompiledForGpu(source, "sm_80"));
  EXPECT_FALSE(IsCompiledForGpu(source + " ", "sm_90"));
  const std::string path = PathOfCompiled(source, "sm_90");
  EXPECT_EQ(fs::path(path).parent_path(), folder + "/kernels");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder + "/kernels"), {}), 1) << "a leftover";
  const std::string kept = Content(path);
  EXPECT_THAT(kept, ::testing::StartsWith(cubin));

  // The file is read: with another content in it and the digest of that, it is what comes back.
  const std::string half = kept.substr(0, kept.size() / 2);
  std::ofstream(path, std::ios::binary) << half;
  EXPECT_FALSE(IsCompiledForGpu(source, "sm_90"));
  EXPECT_EQ(CompiledForGpu(source, "sm_90"), cubin);
  EXPECT_EQ(Content(path), kept) << "a damaged file is replaced";
  const auto written = fs::last_write_time(path);
  EXPECT_EQ(CompiledForGpu(source, "sm_90"), cubin);
  EXPECT_EQ(fs::last_write_time(path), written) << "it is not compiled again";

  ::setenv("STRATA_CACHE", "/proc/nowhere", 1);
  EXPECT_EQ(CompiledForGpu(source, "sm_90"), cubin) << "no folder";
}

}  // namespace
}  // namespace strata
