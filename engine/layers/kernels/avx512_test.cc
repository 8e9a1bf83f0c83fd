#include "engine/layers/kernels/avx512.h"

#include <ATen/Version.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace strata {
namespace {

/// Checks `holds` in a process of its own with this ATEN_CPU_CAPABILITY, since LibTorch and these
/// kernels read the environment only once.
template <class Holds>
void ExpectWith(const char* capability, const Holds& holds) {
  EXPECT_EXIT(
      {
        setenv("ATEN_CPU_CAPABILITY", capability, /*overwrite=*/1);
        std::_Exit(holds() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "")
      << capability;
}

TEST(Avx512, IsHiddenFromOurKernelsAndLibTorchsTogether) {
  if (!__builtin_cpu_supports("x86-64-v3")) GTEST_SKIP() << "no AVX2 with FMA here";
  ExpectWith("avx2",
             [] { return !HasAvx512() && HasAvx2() && at::get_cpu_capability() == "AVX2"; });
  ExpectWith("default", [] {
    return !HasAvx512() && !HasAvx2() && !at::get_cpu_capability().starts_with("AVX");
  });
}

TEST(Avx512, IsThatOfTheProcessorElse) {
  const bool has = __builtin_cpu_supports("x86-64-v4") > 0;
  ExpectWith("", [has] { return HasAvx512() == has; });
}

}  // namespace
}  // namespace strata
