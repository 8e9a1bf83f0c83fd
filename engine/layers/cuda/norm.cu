// LayerNorm and RMSNorm over rows of up to 8,192 elements, forward and backward. A block works on a
// row at a time; each of its threads keeps kPack neighbouring columns in registers, so that a row
// is read once. Statistics are float32.
//
// In the same pass the forward adds up what is normalised, x + dropout(f), and the backward gives
// the gradients of both. Each sum is rounded as the kernels that do one after the other would.
//
// The gradients of weight and bias are sums over rows, in an order that depends on sizes only. Each
// block adds up the rows of its own, its threads each for their columns, and writes one row of
// `partial`; sum_rows() then adds those rows.

/// The columns of the calling thread.
struct Columns {
  int first;
  int count;     ///< 0 for threads behind the end of the row
  bool aligned;  ///< see Load()
};

DEVICE Columns ColumnsOf(int n) {
  const int first = static_cast<int>(threadIdx.x) * kPack;
  const int left = n - first;
  const int count = left < 0 ? 0 : left < kPack ? left : kPack;
  return {first, count, n % kPack == 0 && count > 0};
}

/// Loads the row that is normalised: x, or sum = x + dropout(f), which is stored.
DEVICE void LoadRow(Global<const Element> x, Global<const Element> f, Global<Element> sum,
                    long long seed, float keep, long long at, const Columns& c, float (&v)[kPack]) {
  Load(x, at, c.count, c.aligned, v);
  if (f == nullptr) return;
  float dropped[kPack];
  Load(f, at, c.count, c.aligned, dropped);
  Drop<Element>(seed, keep, at, dropped);
  for (int k = 0; k < kPack; ++k) v[k] = Rounded<Element>(Plus(v[k], dropped[k]));
  Store(sum, at, c.count, c.aligned, v);
}

/// y = (s - mean) rstd weight + bias with s = LoadRow(). weight and bias may be null.
KERNEL layer_norm(Global<const Element> x, Global<const Element> f, Global<Element> sum_of,
                  Global<const float> weight, Global<const float> bias, Global<Element> y,
                  Global<float> means, Global<float> rstds, int n, float eps, long long seed,
                  float keep) {
  const Columns c = ColumnsOf(n);
  const long long at = static_cast<long long>(blockIdx.x) * n + c.first;
  float v[kPack], w[kPack], b[kPack];
  LoadRow(x, f, sum_of, seed, keep, at, c, v);
  float sum = 0, squares = 0, none = 0;
  for (int k = 0; k < kPack; ++k) sum += v[k];
  BlockSums(sum, none);
  const float mean = sum / n;
  for (int k = 0; k < c.count; ++k) squares += (v[k] - mean) * (v[k] - mean);
  BlockSums(squares, none);
  const float rstd = 1 / sqrtf(squares / n + eps);
  if (threadIdx.x == 0) {
    means[blockIdx.x] = mean;
    rstds[blockIdx.x] = rstd;
  }
  for (int k = 0; k < kPack; ++k) w[k] = 1, b[k] = 0;
  if (weight != nullptr) Load(weight, c.first, c.count, c.aligned, w);
  if (bias != nullptr) Load(bias, c.first, c.count, c.aligned, b);
  for (int k = 0; k < kPack; ++k) v[k] = (v[k] - mean) * rstd * w[k] + b[k];
  Store(y, at, c.count, c.aligned, v);
}

/// y = s rstd weight with s = LoadRow().
KERNEL rms_norm(Global<const Element> x, Global<const Element> f, Global<Element> sum_of,
                Global<const float> weight, Global<Element> y, Global<float> rstds, int n,
                float eps, long long seed, float keep) {
  const Columns c = ColumnsOf(n);
  const long long at = static_cast<long long>(blockIdx.x) * n + c.first;
  float v[kPack], w[kPack];
  LoadRow(x, f, sum_of, seed, keep, at, c, v);
  float squares = 0, none = 0;
  for (int k = 0; k < kPack; ++k) squares += v[k] * v[k];
  BlockSums(squares, none);
  const float rstd = 1 / sqrtf(squares / n + eps);
  if (threadIdx.x == 0) rstds[blockIdx.x] = rstd;
  for (int k = 0; k < kPack; ++k) w[k] = 1;
  if (weight != nullptr) Load(weight, c.first, c.count, c.aligned, w);
  for (int k = 0; k < kPack; ++k) v[k] = v[k] * rstd * w[k];
  Store(y, at, c.count, c.aligned, v);
}

/// The gradients of both. For RMSNorm `means` is null. With xhat = (x - mean) rstd and
/// g = dy weight:
///
///   dx = rstd (g - mean(g) - xhat mean(g xhat))     (RMSNorm: without mean(g))
///   dweight = sum over rows of dy xhat,  dbias = sum over rows of dy
///
/// `more`, if not null, is a further gradient of x: of the sum that was normalised. It is added to
/// dx. `df`, if not null, gets dx dropped as f was.
///
/// A block has `rows_of_block` rows. Row b of `partial` gets block b's dweight, and behind these n
/// numbers its dbias if `with_bias`; null: no gradients of weight and bias.
KERNEL norm_backward(Global<const Element> dy, Global<const Element> x, Global<const float> weight,
                     Global<const float> means, Global<const float> rstds,
                     Global<const Element> more, Global<Element> dx, Global<Element> df,
                     Global<float> partial, int with_bias, int rows, int rows_of_block, int n,
                     long long seed, float keep) {
  const Columns c = ColumnsOf(n);
  const int begin = static_cast<int>(blockIdx.x) * rows_of_block;
  const int end = begin + rows_of_block < rows ? begin + rows_of_block : rows;
  float w[kPack], dweight[kPack], dbias[kPack];
  for (int k = 0; k < kPack; ++k) w[k] = 1, dweight[k] = dbias[k] = 0;
  if (weight != nullptr) Load(weight, c.first, c.count, c.aligned, w);
  for (int row = begin; row < end; ++row) {
    const long long at = static_cast<long long>(row) * n + c.first;
    float g[kPack], xhat[kPack];
    Load(dy, at, c.count, c.aligned, g);
    Load(x, at, c.count, c.aligned, xhat);
    const float rstd = rstds[row];
    float mean = 0;
    if (means != nullptr) mean = means[row];
    float sum = 0, product = 0;
    for (int k = 0; k < kPack; ++k) {
      xhat[k] = (xhat[k] - mean) * rstd;
      dweight[k] += g[k] * xhat[k];
      dbias[k] += g[k];
      g[k] *= w[k];
      sum += g[k];
      product += g[k] * xhat[k];
    }
    BlockSums(sum, product);
    const float mean_g = means != nullptr ? sum / n : 0, mean_product = product / n;
    for (int k = 0; k < kPack; ++k) g[k] = rstd * (g[k] - mean_g - xhat[k] * mean_product);
    if (more != nullptr) {
      Load(more, at, c.count, c.aligned, xhat);
      for (int k = 0; k < kPack; ++k) g[k] = Plus(Rounded<Element>(g[k]), xhat[k]);
    }
    Store(dx, at, c.count, c.aligned, g);
    if (df == nullptr) continue;
    for (int k = 0; k < kPack; ++k) g[k] = Rounded<Element>(g[k]);
    Drop<Element>(seed, keep, at, g);
    Store(df, at, c.count, c.aligned, g);
  }
  if (partial == nullptr) return;
  const long long at = static_cast<long long>(blockIdx.x) * (with_bias ? 2 * n : n) + c.first;
  Store(partial, at, c.count, c.aligned, dweight);
  if (with_bias) Store(partial, at + n, c.count, c.aligned, dbias);
}

/// Adds up the rows of `partial` (rows, columns). Column c goes to first[c], from column `n` on to
/// second[c - n]. `adds`: to what is there, otherwise in its place. A block of 32 x 8 threads has
/// 32 columns: thread (i, j) adds up rows j, j + 8, ... of column i, then the first 32 threads add
/// up these eight sums. `second` is null if there are only n columns.
KERNEL sum_rows(Global<const float> partial, Global<float> first, Global<float> second, int rows,
                int columns, int n, int adds) {
  constexpr int kGroups = 8;
  SHARED(float, sums, kGroups* kWarp);
  const int lane = threadIdx.x % kWarp, group = threadIdx.x / kWarp;
  const int column = static_cast<int>(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (column < columns) {
    for (int row = group; row < rows; row += kGroups) {
      sum += partial[static_cast<long long>(row) * columns + column];
    }
  }
  sums[group * kWarp + lane] = sum;
  __syncthreads();
  if (group > 0 || column >= columns) return;
  for (int g = 1; g < kGroups; ++g) sum += sums[g * kWarp + lane];
  if (column < n) {
    first[column] = adds ? first[column] + sum : sum;
  } else {
    second[column - n] = adds ? second[column - n] + sum : sum;
  }
}
