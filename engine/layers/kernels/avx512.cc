#include "engine/layers/kernels/avx512.h"

#include <atomic>

namespace strata {
namespace {

std::atomic<int> hiding = 0;

}  // namespace

bool HasAvx512() {
  static const bool has = __builtin_cpu_supports("avx512f");
  return has && hiding.load(std::memory_order_relaxed) == 0;
}

WithoutAvx512::WithoutAvx512() { ++hiding; }
WithoutAvx512::~WithoutAvx512() { --hiding; }

}  // namespace strata
