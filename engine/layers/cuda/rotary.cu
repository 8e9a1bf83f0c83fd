// Rotary positions of heads (samples, heads, tokens, width): the pair (x[i], x[i + width / 2]) at
// position t turns by the angle t theta^(-2 i / width). The backward turns by the negative angle.

/// Heads that a thread turns by the same angles.
constexpr int kHeadsOfThread = 4;

/// Strides count elements, `y_...` those of y; the last dim's is 1. A thread has kPack pairs
/// of one token and kHeadsOfThread heads: threads count the pairs fastest, then tokens, then
/// samples; blockIdx.y counts the heads. `log_theta` has base 2, `sign` is 1 or -1.
KERNEL rotate(Global<const Element> x, Global<Element> y, int samples, int heads, int tokens,
              int width, long long sample_stride, long long head_stride, long long token_stride,
              long long y_sample_stride, long long y_head_stride, long long y_token_stride,
              int first_position, float log_theta, float sign) {
  const int half = width / 2, packs = (half + kPack - 1) / kPack;
  const long long thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= static_cast<long long>(samples) * tokens * packs) return;
  const int pair = static_cast<int>(thread % packs) * kPack;
  const int token = static_cast<int>(thread / packs % tokens);
  const int sample = static_cast<int>(thread / packs / tokens);
  const int here = half - pair < kPack ? half - pair : kPack;
  const bool aligned = half % kPack == 0;
  float sine[kPack], cosine[kPack];
  for (int k = 0; k < kPack; ++k) {
    const float frequency = exp2f(-log_theta * (static_cast<float>(pair + k) / half));
    sincosf((first_position + token) * frequency, &sine[k], &cosine[k]);
  }
  const int first_head = static_cast<int>(blockIdx.y) * kHeadsOfThread;
  for (int head = first_head; head < first_head + kHeadsOfThread && head < heads; ++head) {
    const long long at = sample * sample_stride + head * head_stride + token * token_stride + pair;
    const long long to =
        sample * y_sample_stride + head * y_head_stride + token * y_token_stride + pair;
    float a[kPack], b[kPack];
    Load(x, at, here, aligned, a);
    Load(x, at + half, here, aligned, b);
    for (int k = 0; k < kPack; ++k) {
      const float left = a[k], right = b[k];
      a[k] = left * cosine[k] - sign * right * sine[k];
      b[k] = right * cosine[k] + sign * left * sine[k];
    }
    Store(y, to, here, aligned, a);
    Store(y, to + half, here, aligned, b);
  }
}
