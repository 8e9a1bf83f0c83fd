#include "engine/layers/kernels/avx512.h"

#include <atomic>

namespace strata {
namespace {

std::atomic<int> hiding_avx512 = 0, hiding_avx2 = 0;

bool IsHidden(const std::atomic<int>& hiding) { return hiding.load(std::memory_order_relaxed) > 0; }

}  // namespace

bool HasAvx512() {
  static const bool has = __builtin_cpu_supports("avx512f");
  return has && !IsHidden(hiding_avx512);
}

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has && !IsHidden(hiding_avx2);
}

WithoutAvx512::WithoutAvx512() { ++hiding_avx512; }
WithoutAvx512::~WithoutAvx512() { --hiding_avx512; }

WithoutAvx2::WithoutAvx2() { ++hiding_avx2; }
WithoutAvx2::~WithoutAvx2() { --hiding_avx2; }

}  // namespace strata
