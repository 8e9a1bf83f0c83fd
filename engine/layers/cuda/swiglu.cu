// y = silu(gate) up, with silu(x) = x / (1 + exp(-x)), and its gradients: one pass each.

DEVICE float Sigmoid(float x) { return 1 / (1 + expf(-x)); }

KERNEL swiglu(Global<const Element> gate, Global<const Element> up, Global<Element> y,
              long long count) {
  const long long at = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack;
  if (at >= count) return;
  const int here = count - at < kPack ? static_cast<int>(count - at) : kPack;
  float g[kPack], u[kPack];
  Load(gate, at, here, here == kPack, g);
  Load(up, at, here, here == kPack, u);
  for (int k = 0; k < kPack; ++k) u[k] *= g[k] * Sigmoid(g[k]);
  Store(y, at, here, here == kPack, u);
}

KERNEL swiglu_backward(Global<const Element> dy, Global<const Element> gate,
                       Global<const Element> up, Global<Element> dgate, Global<Element> dup,
                       long long count) {
  const long long at = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack;
  if (at >= count) return;
  const int here = count - at < kPack ? static_cast<int>(count - at) : kPack;
  float d[kPack], g[kPack], u[kPack];
  Load(dy, at, here, here == kPack, d);
  Load(gate, at, here, here == kPack, g);
  Load(up, at, here, here == kPack, u);
  for (int k = 0; k < kPack; ++k) {
    const float sigmoid = Sigmoid(g[k]), silu = g[k] * sigmoid;
    const float of_gate = d[k] * u[k] * sigmoid * (1 + g[k] * (1 - sigmoid));
    u[k] = d[k] * silu;
    g[k] = of_gate;
  }
  Store(dgate, at, here, here == kPack, g);
  Store(dup, at, here, here == kPack, u);
}
