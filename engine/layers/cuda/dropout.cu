// Dropout, and the end of a residual block, x + dropout(f): one pass each. The same kernel drops
// the gradient. Nothing is kept for it but the seed.

/// y = x + dropout(f); with a null x, y = dropout(f).
KERNEL dropout(Global<const Element> x, Global<const Element> f, Global<Element> y, long long count,
               long long seed, float keep) {
  const long long at = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack;
  if (at >= count) return;
  const int here = count - at < kPack ? static_cast<int>(count - at) : kPack;
  float v[kPack], to[kPack];
  Load(f, at, here, here == kPack, v);
  Drop<Element>(seed, keep, at, v);
  if (x != nullptr) {
    Load(x, at, here, here == kPack, to);
    for (int k = 0; k < kPack; ++k) v[k] = Plus(v[k], to[k]);
  }
  Store(y, at, here, here == kPack, v);
}
