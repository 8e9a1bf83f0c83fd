// Whether the CPU's kernels of our own run, which need AVX-512, or, some of them, AVX2 with FMA.
//
// ATEN_CPU_CAPABILITY=avx2 (or "default", for neither) in the environment hides AVX-512 from these
// kernels and from LibTorch's alike, as on a processor that lacks it. oneDNN and MKL have variables
// of their own: `tools/bazel test --config=avx2` sets them all.
#pragma once

/// Stands before a function that uses it. Who calls such a function asks HasAvx512() first.
#define STRATA_AVX512 __attribute__((target("avx512f")))
#define STRATA_AVX512_INLINE inline __attribute__((target("avx512f"), always_inline))

#define STRATA_AVX2 __attribute__((target("avx2,fma")))
#define STRATA_AVX2_INLINE inline __attribute__((target("avx2,fma"), always_inline))

/// Stands before a plain loop, of which the compiler makes a version for each kind of registers.
/// The widest that the processor has runs, whatever the environment says: it is chosen when the
/// program is loaded. ("arch=skylake-avx512" would be Intel's processors alone.)
#define STRATA_WIDEST \
  __attribute__((target_clones("arch=x86-64-v4", "avx2", "default"), optimize("O3")))

namespace strata {

/// With all that x86-64-v4 names: F, BW, CD, DQ and VL.
bool HasAvx512();
bool HasAvx2();

/// For tests: while it lives, this computer has no AVX-512.
class WithoutAvx512 {
 public:
  WithoutAvx512();
  ~WithoutAvx512();
  WithoutAvx512(const WithoutAvx512&) = delete;
  WithoutAvx512& operator=(const WithoutAvx512&) = delete;
};

/// For tests: while it lives, this computer has neither, so that every sum is ATen's.
class WithoutAvx2 {
 public:
  WithoutAvx2();
  ~WithoutAvx2();
  WithoutAvx2(const WithoutAvx2&) = delete;
  WithoutAvx2& operator=(const WithoutAvx2&) = delete;

 private:
  const WithoutAvx512 nor_avx512_;
};

}  // namespace strata
