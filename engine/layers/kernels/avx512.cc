#include "engine/layers/kernels/avx512.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

namespace strata {
namespace {

/// True if the environment variable ATEN_CPU_CAPABILITY names one of `lower`, instruction sets
/// below the one in question. LibTorch reads the variable in the same way, once.
bool IsLoweredTo(std::initializer_list<std::string_view> lower) {
  const char* const set = std::getenv("ATEN_CPU_CAPABILITY");
  return set && std::ranges::find(lower, std::string_view(set)) != lower.end();
}

std::atomic<int> hiding_avx512 = 0, hiding_avx2 = 0;

bool IsHidden(const std::atomic<int>& hiding) { return hiding.load(std::memory_order_relaxed) > 0; }

}  // namespace

bool HasAvx512() {
  static const bool has = __builtin_cpu_supports("x86-64-v4") && !IsLoweredTo({"avx2", "default"});
  return has && !IsHidden(hiding_avx512);
}

bool HasAvx2() {
  static const bool has =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && !IsLoweredTo({"default"});
  return has && !IsHidden(hiding_avx2);
}

WithoutAvx512::WithoutAvx512() { ++hiding_avx512; }
WithoutAvx512::~WithoutAvx512() { --hiding_avx512; }

WithoutAvx2::WithoutAvx2() { ++hiding_avx2; }
WithoutAvx2::~WithoutAvx2() { --hiding_avx2; }

}  // namespace strata
