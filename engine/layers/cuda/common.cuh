// The types, loads and sums that all kernels use. NVRTC compiles this file in front of a kernel's
// file; on the CPU, on_cpu.h gives the words KERNEL, SHARED, Global and LoadVector another meaning
// and compiles both files as C++. Nothing is included, so no header of CUDA's is needed where a
// kernel is compiled.
//
// Element, the type of a layer's tensors, is defined between this file and the kernel's.

struct Bf16 {
  unsigned short bits;
};
struct Fp16 {
  unsigned short bits;
};

/// Elements that a thread loads and stores at once. Two bytes each make 16 bytes, the widest load.
constexpr int kPack = 8;
template <class T>
struct alignas(16) Pack {
  T v[kPack];
};

template <class T>
struct WithoutConst {
  using Type = T;
};
template <class T>
struct WithoutConst<const T> {
  using Type = T;
};

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

#ifdef __CUDACC_RTC__
#define KERNEL extern "C" __global__ void __launch_bounds__(1024)
#define DEVICE __device__ __forceinline__
#define SHARED(type, name, count) __shared__ type name[count]
template <class T>
using Global = T* __restrict__;

template <class T>
DEVICE Pack<typename WithoutConst<T>::Type> LoadVector(Global<T> p, long long i) {
  return *reinterpret_cast<const Pack<typename WithoutConst<T>::Type>*>(p + i);
}
template <class T>
DEVICE void StoreVector(Global<T> p, long long i, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(p + i) = pack;
}

DEVICE float ToFloat(float x) { return x; }
DEVICE float ToFloat(Bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
DEVICE float ToFloat(Fp16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
DEVICE void Round(float x, float& to) { to = x; }
DEVICE void Round(float x, Bf16& to) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
DEVICE void Round(float x, Fp16& to) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
/// a + b, which the compiler does not join with a product before it: so a sum has the same bits in
/// a kernel of its own and in a fused one.
DEVICE float Plus(float a, float b) { return __fadd_rn(a, b); }
#endif

/// Loads up to kPack elements from p[i] on as floats; zeros stand for those beyond `count`.
/// `aligned`: all kPack are there, and p[i] lies at a multiple of 16 bytes.
template <class T>
DEVICE void Load(Global<T> p, long long i, int count, bool aligned, float (&to)[kPack]) {
  if (aligned) {
    const Pack<typename WithoutConst<T>::Type> pack = LoadVector(p, i);
    for (int k = 0; k < kPack; ++k) to[k] = ToFloat(pack.v[k]);
  } else {
    for (int k = 0; k < kPack; ++k) {
      to[k] = 0;
      if (k < count) to[k] = ToFloat(p[i + k]);
    }
  }
}

/// Rounds up to kPack floats to T and stores those that `count` covers; `aligned` as in Load().
template <class T>
DEVICE void Store(Global<T> p, long long i, int count, bool aligned, const float (&from)[kPack]) {
  Pack<T> pack;
  for (int k = 0; k < kPack; ++k) Round(from[k], pack.v[k]);
  if (aligned) {
    StoreVector(p, i, pack);
  } else {
    for (int k = 0; k < kPack; ++k) {
      if (k < count) p[i + k] = pack.v[k];
    }
  }
}

/// The sum over the lanes of a warp, with the same bits on each lane: in every round a lane and its
/// partner add the same two numbers.
DEVICE float WarpSum(float x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

/// The sums of a and of b over the threads of a block, on each thread.
DEVICE void BlockSums(float& a, float& b) {
  constexpr int kMostWarps = 32;
  SHARED(float, parts, 2 * kMostWarps);
  a = WarpSum(a);
  b = WarpSum(b);
  const int warps = blockDim.x / kWarp, warp = threadIdx.x / kWarp;
  if (threadIdx.x % kWarp == 0) {
    parts[warp] = a;
    parts[kMostWarps + warp] = b;
  }
  __syncthreads();
  a = b = 0;
  for (int w = 0; w < warps; ++w) {
    a += parts[w];
    b += parts[kMostWarps + w];
  }
  __syncthreads();  // all have read before the next call writes
}

/// x rounded to T and back.
template <class T>
DEVICE float Rounded(float x) {
  T y;
  Round(x, y);
  return ToFloat(y);
}

// ---- Random numbers

struct Words {
  unsigned v[4];
};

/// Philox4x32-10 (Salmon et al., SC 2011): four random words, a function of key and counter.
DEVICE Words Philox(unsigned long long key, unsigned long long counter) {
  unsigned c[4] = {static_cast<unsigned>(counter), static_cast<unsigned>(counter >> 32), 0, 0};
  unsigned k0 = static_cast<unsigned>(key), k1 = static_cast<unsigned>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const unsigned long long a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
    c[0] = static_cast<unsigned>(b >> 32) ^ c[1] ^ k0;
    c[1] = static_cast<unsigned>(b);
    c[2] = static_cast<unsigned>(a >> 32) ^ c[3] ^ k1;
    c[3] = static_cast<unsigned>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

/// Dropout's factor for an element, of which `word` decides: 0, or 1 / keep with probability keep.
DEVICE float Factor(unsigned word, float keep) {
  return static_cast<float>(word >> 8) * 0x1p-24f < keep ? 1 / keep : 0.0f;
}

/// Multiplies the elements i..i + kPack - 1 of a tensor by dropout's factors and rounds them to T.
/// The factors are a function of seed and place, so that the backward draws them again. Element i
/// has word i % 4 of counter i / 4.
template <class T>
DEVICE void Drop(long long seed, float keep, long long i, float (&x)[kPack]) {
  if (keep >= 1) return;
  if (i % 4 == 0) {
    for (int part = 0; part < kPack / 4; ++part) {
      const Words words = Philox(seed, i / 4 + part);
      for (int k = 0; k < 4; ++k) x[4 * part + k] *= Factor(words.v[k], keep);
    }
  } else {
    for (int k = 0; k < kPack; ++k) x[k] *= Factor(Philox(seed, (i + k) / 4).v[(i + k) % 4], keep);
  }
  for (int k = 0; k < kPack; ++k) x[k] = Rounded<T>(x[k]);
}
