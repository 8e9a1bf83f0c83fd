// The elements of a packed weight (engine/layers/packing.h) as Element: code times scale in
// float32, rounded once. A thread has kPack elements.

/// The value of NF4 that a code stands for: a tree of comparisons, since an array would lie in slow
/// memory.
DEVICE float OfNf4(int code) {
  if (code & 8) {
    if (code & 4) {
      if (code & 2) return code & 1 ? 1.0f : 0.7229568362236023f;
      return code & 1 ? 0.5626170039176941f : 0.44070982933044434f;
    }
    if (code & 2) return code & 1 ? 0.33791524171829224f : 0.24611230194568634f;
    return code & 1 ? 0.16093020141124725f : 0.07958029955625534f;
  }
  if (code & 4) {
    if (code & 2) return code & 1 ? 0.0f : -0.09105003625154495f;
    return code & 1 ? -0.18477343022823334f : -0.28444138169288635f;
  }
  if (code & 2) return code & 1 ? -0.39491748809814453f : -0.5250730514526367f;
  return code & 1 ? -0.6961928009986877f : -1.0f;
}

/// The first element of a thread, and how many there are of it among `count`.
struct OfThread {
  long long begin;
  int count;
};
DEVICE OfThread ElementsOf(long long count) {
  const long long begin = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack;
  const long long left = count - begin;
  return {begin, static_cast<int>(left < 0 ? 0 : left < kPack ? left : kPack)};
}

/// The elements first..first+count-1 of the matrix.
KERNEL unpack_nf4(Global<const unsigned char> codes, Global<const float> scales,
                  Global<Element> dense, long long first, long long count) {
  constexpr int kBlock = 64;
  const OfThread own = ElementsOf(count);
  float v[kPack] = {};
  for (int k = 0; k < own.count; ++k) {
    const long long i = first + own.begin + k;
    const int both = codes[i / 2];
    v[k] = OfNf4(i % 2 == 0 ? both >> 4 : both & 15) * scales[i / kBlock];
  }
  if (own.count > 0) Store(dense, own.begin, own.count, own.count == kPack, v);
}

/// The same; a row has `columns` elements.
KERNEL unpack_int8(Global<const unsigned char> codes, Global<const float> scales,
                   Global<Element> dense, long long first, long long count, long long columns) {
  const OfThread own = ElementsOf(count);
  float v[kPack] = {};
  long long row = (first + own.begin) / columns, column = (first + own.begin) % columns;
  for (int k = 0; k < own.count; ++k) {
    const signed char code = static_cast<signed char>(codes[first + own.begin + k]);
    v[k] = static_cast<float>(code) * scales[row] * (1 / 127.0f);
    if (++column == columns) {
      column = 0;
      ++row;
    }
  }
  if (own.count > 0) Store(dense, own.begin, own.count, own.count == kPack, v);
}
