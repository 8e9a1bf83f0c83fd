// Whether the CPU's kernels of our own run, which need AVX-512.
#pragma once

/// Stands before a function that uses it. Who calls such a function asks HasAvx512() first.
#define STRATA_AVX512 __attribute__((target("avx512f")))
#define STRATA_AVX512_INLINE inline __attribute__((target("avx512f"), always_inline))

namespace strata {

bool HasAvx512();

/// For tests: while it lives, this computer has none, so that every sum is ATen's.
class WithoutAvx512 {
 public:
  WithoutAvx512();
  ~WithoutAvx512();
  WithoutAvx512(const WithoutAvx512&) = delete;
  WithoutAvx512& operator=(const WithoutAvx512&) = delete;
};

}  // namespace strata
