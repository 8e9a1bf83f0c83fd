#include "engine/layers/kernels/avx512.h"

#include <ATen/Version.h>

#include <atomic>
#include <string>

namespace strata {
namespace {

/// The instruction set that LibTorch's kernels use: "AVX512" on an x86-64-v4 processor, "AVX2"
/// (with FMA), or less. The environment variable ATEN_CPU_CAPABILITY can lower it.
const std::string& Capability() {
  static const std::string capability = at::get_cpu_capability();
  return capability;
}

std::atomic<int> hiding_avx512 = 0, hiding_avx2 = 0;

bool IsHidden(const std::atomic<int>& hiding) { return hiding.load(std::memory_order_relaxed) > 0; }

}  // namespace

bool HasAvx512() {
  static const bool has = __builtin_cpu_supports("x86-64-v4") && Capability() == "AVX512";
  return has && !IsHidden(hiding_avx512);
}

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          (Capability() == "AVX2" || Capability() == "AVX512");
  return has && !IsHidden(hiding_avx2);
}

WithoutAvx512::WithoutAvx512() { ++hiding_avx512; }
WithoutAvx512::~WithoutAvx512() { --hiding_avx512; }

WithoutAvx2::WithoutAvx2() { ++hiding_avx2; }
WithoutAvx2::~WithoutAvx2() { --hiding_avx2; }

}  // namespace strata
