// y = silu(gate) up, with silu(x) = x / (1 + exp(-x)), and its gradients: one pass each.
//
// gate and up are tensors of one shape, or the halves of each row of one tensor, as a single
// product gives them; then `up` is null. A row of a half has `width` elements, and the next one
// begins `stride` elements behind it. So it is with the gradients. y has no gaps.

DEVICE float Sigmoid(float x) { return 1 / (1 + expf(-x)); }

/// The place in gate of element i of y.
DEVICE long long PlaceOf(long long i, long long width, long long stride) {
  return i / width * stride + i % width;
}

/// Loads the elements of gate or up that belong to y[i..i + count - 1]. `more`: where the half
/// begins. `aligned`: they lie in one row, from a multiple of 16 bytes on.
DEVICE void LoadPart(Global<const Element> p, long long more, long long i, int count, bool aligned,
                     long long width, long long stride, float (&to)[kPack]) {
  if (aligned) return Load(p, PlaceOf(i, width, stride) + more, count, true, to);
  for (int k = 0; k < kPack; ++k) {
    to[k] = 0;
    if (k < count) to[k] = ToFloat(p[PlaceOf(i + k, width, stride) + more]);
  }
}

DEVICE void StorePart(Global<Element> p, long long more, long long i, int count, bool aligned,
                      long long width, long long stride, const float (&from)[kPack]) {
  if (aligned) return Store(p, PlaceOf(i, width, stride) + more, count, true, from);
  for (int k = 0; k < count; ++k) {
    Element rounded;
    Round(from[k], rounded);
    p[PlaceOf(i + k, width, stride) + more] = rounded;
  }
}

/// `aligned`: width and stride are multiples of kPack.
KERNEL swiglu(Global<const Element> gate, Global<const Element> up, Global<Element> y,
              long long count, long long width, long long stride, int aligned) {
  const long long at = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack;
  if (at >= count) return;
  const int here = count - at < kPack ? static_cast<int>(count - at) : kPack;
  const bool vectors = aligned && here == kPack, halves = up == nullptr;
  float g[kPack], u[kPack];
  LoadPart(gate, 0, at, here, vectors, width, stride, g);
  LoadPart(halves ? gate : up, halves ? width : 0, at, here, vectors, width, stride, u);
  for (int k = 0; k < kPack; ++k) u[k] *= g[k] * Sigmoid(g[k]);
  Store(y, at, here, here == kPack, u);
}

KERNEL swiglu_backward(Global<const Element> dy, Global<const Element> gate,
                       Global<const Element> up, Global<Element> dgate, Global<Element> dup,
                       long long count, long long width, long long stride, int aligned) {
  const long long at = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack;
  if (at >= count) return;
  const int here = count - at < kPack ? static_cast<int>(count - at) : kPack;
  const bool vectors = aligned && here == kPack, halves = up == nullptr;
  float d[kPack], g[kPack], u[kPack];
  Load(dy, at, here, here == kPack, d);
  LoadPart(gate, 0, at, here, vectors, width, stride, g);
  LoadPart(halves ? gate : up, halves ? width : 0, at, here, vectors, width, stride, u);
  for (int k = 0; k < kPack; ++k) {
    const float sigmoid = Sigmoid(g[k]), silu = g[k] * sigmoid;
    const float of_gate = d[k] * u[k] * sigmoid * (1 + g[k] * (1 - sigmoid));
    u[k] = d[k] * silu;
    g[k] = of_gate;
  }
  StorePart(dgate, 0, at, here, vectors, width, stride, g);
  StorePart(halves ? dgate : dup, halves ? width : 0, at, here, vectors, width, stride, u);
}
