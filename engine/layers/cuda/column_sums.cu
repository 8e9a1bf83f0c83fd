// The sums of a matrix's columns, added to a row of float32: the gradient of a bias. One launch
// reads the matrix once, and the order of sums depends on sizes alone.
//
// A block has 32 columns. Four neighbouring threads have kPack columns each of one row; a warp has
// eight rows at a time, and the warps of a block take turns. A thread adds up its own rows, a warp
// the sums of its threads by exchanges, and the first warp the sums of all warps, in their order.

/// `rows` rows of `columns` elements, each `stride` elements behind the one before. `aligned`:
/// every row begins at a multiple of 16 bytes.
KERNEL column_sums(Global<const Element> x, Global<float> sums, int rows, int columns,
                   long long stride, int aligned) {
  constexpr int kPacks = kWarp / kPack, kMostWarps = 32;
  SHARED(float, parts, kMostWarps* kWarp);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const int first = static_cast<int>(blockIdx.x) * kWarp + lane % kPacks * kPack;
  const int left = columns - first;
  const int count = left < 0 ? 0 : left < kPack ? left : kPack;
  float sum[kPack], v[kPack];
  for (int k = 0; k < kPack; ++k) sum[k] = 0;
  const int rows_of_warp = kWarp / kPacks;
  for (int row = warp * rows_of_warp + lane / kPacks; row < rows; row += warps * rows_of_warp) {
    Load(x, row * stride + first, count, aligned && count == kPack, v);
    for (int k = 0; k < kPack; ++k) sum[k] += v[k];
  }
  for (int step = kWarp / 2; step >= kPacks; step /= 2) {
    for (int k = 0; k < kPack; ++k) sum[k] += __shfl_xor_sync(kAllLanes, sum[k], step);
  }
  if (lane < kPacks) {
    for (int k = 0; k < kPack; ++k) parts[warp * kWarp + lane * kPack + k] = sum[k];
  }
  __syncthreads();
  const int column = static_cast<int>(blockIdx.x) * kWarp + lane;
  if (warp > 0 || column >= columns) return;
  float all = 0;
  for (int w = 0; w < warps; ++w) all += parts[w * kWarp + lane];
  sums[column] = sums[column] + all;
}
