// Whether the CPU's kernels of our own run, which need AVX-512.
#pragma once

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
