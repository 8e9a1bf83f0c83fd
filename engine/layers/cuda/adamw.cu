// Adam and AdamW over a flat buffer in one pass: divides the gradient by the loss's weight and the
// clip factor, updates both moments and the values, and writes the copy in half precision that
// layers compute with. The formulas are those of torch.optim, in float32.

/// `decay` is applied to the values if `decoupled` (AdamW), otherwise to the gradient. `step_size`
/// is lr / (1 - beta1^t), `correction` is sqrt(1 - beta2^t). `copy` may be null. Gradients hold the
/// quotient afterwards.
KERNEL adamw(Global<float> values, Global<float> gradients, Global<float> averages,
             Global<float> squares, Global<Element> copy, long long count, float divisor, float lr,
             float keep_average, float keep_square, float new_square, float decay, float eps,
             float step_size, float correction, int decoupled, int maximize) {
  const long long at = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack;
  if (at >= count) return;
  const int here = count - at < kPack ? static_cast<int>(count - at) : kPack;
  const bool aligned = here == kPack;
  float p[kPack], g[kPack], m[kPack], v[kPack];
  Load(values, at, here, aligned, p);
  Load(gradients, at, here, aligned, g);
  Load(averages, at, here, aligned, m);
  Load(squares, at, here, aligned, v);
  for (int k = 0; k < kPack; ++k) g[k] /= divisor;
  Store(gradients, at, here, aligned, g);
  for (int k = 0; k < kPack; ++k) {
    float gradient = maximize ? -g[k] : g[k];
    if (decoupled) {
      p[k] -= lr * decay * p[k];
    } else {
      gradient += decay * p[k];
    }
    m[k] = gradient + keep_average * (m[k] - gradient);
    v[k] = keep_square * v[k] + new_square * gradient * gradient;
    p[k] -= step_size * m[k] / (sqrtf(v[k]) / correction + eps);
  }
  Store(values, at, here, aligned, p);
  Store(averages, at, here, aligned, m);
  Store(squares, at, here, aligned, v);
  if (copy != nullptr) Store(copy, at, here, aligned, p);
}
