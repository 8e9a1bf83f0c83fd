// Decides whether Strata's own CPU kernels run. They need AVX-512; some also run with AVX2 and FMA.
//
// The environment variable ATEN_CPU_CAPABILITY=avx2 hides AVX-512 both from these kernels and from
// LibTorch's, as on a processor that lacks it; "default" hides AVX2 too. oneDNN and MKL have
// variables of their own: `tools/bazel test --config=avx2` sets them all.
#pragma once

/// Marks a function that is compiled for AVX-512. The caller must check HasAvx512() first.
#define STRATA_AVX512 __attribute__((target("avx512f")))
#define STRATA_AVX512_INLINE inline __attribute__((target("avx512f"), always_inline))

#define STRATA_AVX2 __attribute__((target("avx2,fma")))
#define STRATA_AVX2_INLINE inline __attribute__((target("avx2,fma"), always_inline))

/// Marks a function with a plain loop. The compiler makes one version for each instruction set, and
/// the program loader chooses the widest that the processor has, whatever the environment says.
/// ("arch=skylake-avx512" would match Intel's processors only.)
#define STRATA_WIDEST \
  __attribute__((target_clones("arch=x86-64-v4", "avx2", "default"), optimize("O3")))

namespace strata {

/// True if the AVX-512 extensions of x86-64-v4 (F, BW, CD, DQ and VL) may be used.
bool HasAvx512();
bool HasAvx2();

/// For tests: while an object lives, HasAvx512() is false.
class WithoutAvx512 {
 public:
  WithoutAvx512();
  ~WithoutAvx512();
  WithoutAvx512(const WithoutAvx512&) = delete;
  WithoutAvx512& operator=(const WithoutAvx512&) = delete;
};

/// For tests: while an object lives, HasAvx512() and HasAvx2() are false, so that ATen computes
/// every sum.
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
