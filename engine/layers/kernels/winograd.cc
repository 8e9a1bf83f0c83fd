// With "place" p for one of the 16 elements of a transformed tile or window, the convolution is,
// for blocks of about kTiles tiles:
//
//   V[p] (C, tiles) = transformed input tiles, U[p] (K, C) = transformed windows,
//   M[p] = U[p] V[p] for each of the 16 places, y = the transformed M.
//
// The gradient of x is the same convolution of dy, with windows turned by 180 degrees and with
// inputs and outputs exchanged. The gradient of the weight sums dY[p] (K, tiles) times V[p]^T
// (tiles, C) over all blocks, and transforms the sum. A transform works on 16 tiles (or windows) at
// once, one in each lane of a register. The weights are transformed anew for each block, which the
// products of a block outweigh.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/kernels/winograd.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/tensors/dry_run.h"
#include "engine/layers/kernels/avx512.h"
#include "engine/layers/kernels/winograd_sizes.h"

namespace strata::winograd {
namespace {

using Vec = __m512;
constexpr int64_t kWindow = 9;  ///< elements of a window: 3 rows of 3

Sizes SizesOf(const at::Tensor& x, const at::Tensor& weight) {
  return {x.size(0), x.size(1), weight.size(0), x.size(2), x.size(3)};
}

/// Memory for `count` floats.
at::Tensor Scratch(int64_t count) { return at::empty({count}, at::kFloat); }

float* DataOf(const at::Tensor& t) { return t.mutable_data_ptr<float>(); }

// ---- Transforms. Place p of a transformed tile lies at p * plane; 16 tiles lie side by side.

/// A mask of the lanes l with 0 <= first + l < count.
STRATA_AVX512_INLINE __mmask16 Within(int64_t first, int64_t count) {
  const auto up_to = [](int64_t lanes) { return (1U << std::clamp<int64_t>(lanes, 0, 16)) - 1; };
  return static_cast<__mmask16>(up_to(count - first) & ~up_to(-first));
}

struct Pair {
  Vec even, odd;
};

/// Loads columns `first` + 0, 2, 4, ... (even) and + 1, 3, 5, ... (odd) of a row, with zeros
/// outside of it.
STRATA_AVX512_INLINE Pair Columns(const float* row, int64_t first, int64_t width) {
  const Vec a = _mm512_maskz_loadu_ps(Within(first, width), row + first);
  const Vec b = _mm512_maskz_loadu_ps(Within(first + kLanes, width), row + first + kLanes);
  return {__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
          __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)};
}

/// Writes columns `first` + 0, 2, 4, ... (even) and + 1, 3, 5, ... (odd) of a row.
STRATA_AVX512_INLINE void StoreColumns(Pair pair, float* row, int64_t first, int64_t width) {
  const auto [a, b] = pair;
  _mm512_mask_storeu_ps(
      row + first, Within(first, width),
      __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
  _mm512_mask_storeu_ps(
      row + first + kLanes, Within(first + kLanes, width),
      __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
}

// The transforms of one dim, which are the paper's matrices. They are named by what they transform.

struct InputTile {  // trans(B)
  static constexpr int kFrom = 4, kTo = 4;
  static STRATA_AVX512_INLINE void Line(const Vec (&d)[kFrom], Vec (&to)[kTo]) {
    to[0] = d[0] - d[2];
    to[1] = d[1] + d[2];
    to[2] = d[2] - d[1];
    to[3] = d[1] - d[3];
  }
};

struct OutputTile {  // trans(A)
  static constexpr int kFrom = 4, kTo = 2;
  static STRATA_AVX512_INLINE void Line(const Vec (&m)[kFrom], Vec (&to)[kTo]) {
    to[0] = m[0] + m[1] + m[2];
    to[1] = m[1] - m[2] - m[3];
  }
};

struct OutputGradientTile {  // A
  static constexpr int kFrom = 2, kTo = 4;
  static STRATA_AVX512_INLINE void Line(const Vec (&dy)[kFrom], Vec (&to)[kTo]) {
    to[0] = dy[0];
    to[1] = dy[0] + dy[1];
    to[2] = dy[0] - dy[1];
    to[3] = -dy[1];
  }
};

struct Window {  // G
  static constexpr int kFrom = 3, kTo = 4;
  static STRATA_AVX512_INLINE void Line(const Vec (&g)[kFrom], Vec (&to)[kTo]) {
    const Vec half = _mm512_set1_ps(0.5F), outer = (g[0] + g[2]) * half, inner = g[1] * half;
    to[0] = g[0];
    to[1] = outer + inner;
    to[2] = outer - inner;
    to[3] = g[2];
  }
};

struct WindowGradient {  // trans(G)
  static constexpr int kFrom = 4, kTo = 3;
  static STRATA_AVX512_INLINE void Line(const Vec (&u)[kFrom], Vec (&to)[kTo]) {
    const Vec half = _mm512_set1_ps(0.5F), sum = (u[1] + u[2]) * half;
    to[0] = u[0] + sum;
    to[1] = (u[1] - u[2]) * half;
    to[2] = sum + u[3];
  }
};

/// Applies the transform T along both dims.
template <class T>
STRATA_AVX512_INLINE void Transform(const Vec (&from)[T::kFrom][T::kFrom],
                                    Vec (&to)[T::kTo][T::kTo]) {
  Vec rows[T::kFrom][T::kTo];
#pragma GCC unroll 4
  for (int r = 0; r < T::kFrom; ++r) T::Line(from[r], rows[r]);
#pragma GCC unroll 4
  for (int c = 0; c < T::kTo; ++c) {
    Vec column[T::kFrom], transformed[T::kTo];
#pragma GCC unroll 4
    for (int r = 0; r < T::kFrom; ++r) column[r] = rows[r][c];
    T::Line(column, transformed);
#pragma GCC unroll 4
    for (int r = 0; r < T::kTo; ++r) to[r][c] = transformed[r];
  }
}

STRATA_AVX512_INLINE void StorePlaces(const Vec (&places)[4][4], float* to, int64_t plane,
                                      __mmask16 lanes) {
#pragma GCC unroll 16
  for (int p = 0; p < kPlaces; ++p) {
    _mm512_mask_storeu_ps(to + p * plane, lanes, places[p / 4][p % 4]);
  }
}

STRATA_AVX512_INLINE void LoadPlaces(const float* from, int64_t plane, __mmask16 lanes,
                                     Vec (&places)[4][4]) {
#pragma GCC unroll 16
  for (int p = 0; p < kPlaces; ++p) {
    places[p / 4][p % 4] = _mm512_maskz_loadu_ps(lanes, from + p * plane);
  }
}

/// A row of tiles of one image. `top` is its first row of outputs.
struct TileRow {
  int64_t top, height, width;

  int64_t tiles() const { return (width + 1) / 2; }
  int64_t WidthAt(int64_t row) const { return row >= 0 && row < height ? width : 0; }
};

STRATA_AVX512 void TransformInput(const float* picture, TileRow row, float* to, int64_t plane) {
  for (int64_t tile = 0; tile < row.tiles(); tile += kLanes) {
    Vec from[4][4], places[4][4];
#pragma GCC unroll 4
    for (int64_t r = 0; r < 4; ++r) {
      const int64_t y = row.top - 1 + r, width = row.WidthAt(y);
      const auto [c0, c1] = Columns(picture + y * row.width, 2 * tile - 1, width);
      const auto [c2, c3] = Columns(picture + y * row.width, 2 * tile + 1, width);
      from[r][0] = c0, from[r][1] = c1, from[r][2] = c2, from[r][3] = c3;
    }
    Transform<InputTile>(from, places);
    StorePlaces(places, to + tile, plane, Within(tile, row.tiles()));
  }
}

STRATA_AVX512 void TransformOutputGradient(const float* picture, TileRow row, float* to,
                                           int64_t plane) {
  for (int64_t tile = 0; tile < row.tiles(); tile += kLanes) {
    Vec from[2][2], places[4][4];
#pragma GCC unroll 2
    for (int64_t r = 0; r < 2; ++r) {
      const int64_t y = row.top + r;
      const auto [c0, c1] = Columns(picture + y * row.width, 2 * tile, row.WidthAt(y));
      from[r][0] = c0, from[r][1] = c1;
    }
    Transform<OutputGradientTile>(from, places);
    StorePlaces(places, to + tile, plane, Within(tile, row.tiles()));
  }
}

STRATA_AVX512 void OutputOf(const float* from, int64_t plane, TileRow row, float bias,
                            float* picture) {
  for (int64_t tile = 0; tile < row.tiles(); tile += kLanes) {
    Vec places[4][4], to[2][2];
    LoadPlaces(from + tile, plane, Within(tile, row.tiles()), places);
    Transform<OutputTile>(places, to);
    const Vec added = _mm512_set1_ps(bias);
#pragma GCC unroll 2
    for (int64_t r = 0; r < 2; ++r) {
      const int64_t y = row.top + r;
      StoreColumns({to[r][0] + added, to[r][1] + added}, picture + y * row.width, 2 * tile,
                   row.WidthAt(y));
    }
  }
}

/// One step of transposing a matrix of 16 registers of 16 floats: in each square of 2 size x 2 size
/// it swaps the two squares of `size` x `size` beside the diagonal.
template <int size>
STRATA_AVX512_INLINE void SwapSquares(Vec (&m)[16]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if (i & size) continue;
    const Vec a = m[i], b = m[i + size];
    if constexpr (size == 8) {
      m[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
      m[i + size] = __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28,
                                            29, 30, 31);
    } else if constexpr (size == 4) {
      m[i] =
          __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
      m[i + size] =
          __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
    } else if constexpr (size == 2) {
      m[i] =
          __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      m[i + size] =
          __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    } else {
      m[i] =
          __builtin_shufflevector(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
      m[i + size] =
          __builtin_shufflevector(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
    }
  }
}

STRATA_AVX512_INLINE void Transpose(Vec (&m)[16]) {
  SwapSquares<8>(m);
  SwapSquares<4>(m);
  SwapSquares<2>(m);
  SwapSquares<1>(m);
}

constexpr __mmask16 kOfWindow = (1 << kWindow) - 1;

/// Transforms 16 windows that lie one after the other. If `turned`, each is rotated by 180 degrees
/// first, as the gradient of the input needs it.
STRATA_AVX512 void TransformWindows(const float* windows, bool turned, float* to, int64_t plane) {
  Vec elements[16];
#pragma GCC unroll 16
  for (int w = 0; w < 16; ++w) {
    elements[w] = _mm512_maskz_loadu_ps(kOfWindow, windows + w * kWindow);
  }
  Transpose(elements);
  Vec from[3][3], places[4][4];
#pragma GCC unroll 9
  for (int e = 0; e < kWindow; ++e) from[e / 3][e % 3] = elements[turned ? kWindow - 1 - e : e];
  Transform<Window>(from, places);
  StorePlaces(places, to, plane, 0xffff);
}

/// Transforms the sums of 16 windows back and adds the gradients to `windows`, or stores them there
/// if `overwrites`.
STRATA_AVX512 void AddGradientOfWindows(const float* from, int64_t plane, bool overwrites,
                                        float* windows) {
  Vec places[4][4], to[3][3];
  LoadPlaces(from, plane, 0xffff, places);
  Transform<WindowGradient>(places, to);
  Vec elements[16];
#pragma GCC unroll 16
  for (int e = 0; e < 16; ++e) elements[e] = e < kWindow ? to[e / 3][e % 3] : _mm512_setzero_ps();
  Transpose(elements);
#pragma GCC unroll 16
  for (int w = 0; w < 16; ++w) {
    float* window = windows + w * kWindow;
    const Vec before = overwrites ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(kOfWindow, window);
    _mm512_mask_storeu_ps(window, kOfWindow, before + elements[w]);
  }
}

/// Transposes 16 rows of 16 floats.
STRATA_AVX512 void StoreTransposed(const float* from, int64_t from_row, float* to, int64_t to_row) {
  Vec rows[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) rows[r] = _mm512_loadu_ps(from + r * from_row);
  Transpose(rows);
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) _mm512_storeu_ps(to + r * to_row, rows[r]);
}

// ---- Products

/// The first operand of a product. Element (m, k) is at data[m * row + k * column].
struct Factor {
  const float* data;
  int64_t row, column;
};

/// The second operand or the result of a product. Element (m, n) is at data[m * row + n].
struct Matrix {
  float* data;
  int64_t row;
};

/// sum = a b, or sum += a b if `adds`, for `rows` rows and 16 * `registers` columns. All sums stay
/// in registers.
template <int rows, int registers>
STRATA_AVX512 void MultiplyBlock(Factor a, Matrix b, Matrix sum, int64_t depth, bool adds) {
  Vec sums[rows][registers];
#pragma GCC unroll 16
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < registers; ++n) {
      sums[m][n] =
          adds ? _mm512_loadu_ps(sum.data + m * sum.row + n * kLanes) : _mm512_setzero_ps();
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec columns[registers];
#pragma GCC unroll 4
    for (int n = 0; n < registers; ++n) {
      columns[n] = _mm512_loadu_ps(b.data + k * b.row + n * kLanes);
    }
#pragma GCC unroll 16
    for (int m = 0; m < rows; ++m) {
      const Vec factor = _mm512_set1_ps(a.data[m * a.row + k * a.column]);
#pragma GCC unroll 4
      for (int n = 0; n < registers; ++n) {
        sums[m][n] = _mm512_fmadd_ps(factor, columns[n], sums[m][n]);
      }
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < registers; ++n) {
      _mm512_storeu_ps(sum.data + m * sum.row + n * kLanes, sums[m][n]);
    }
  }
}

/// MultiplyBlock() for any number of rows. Blocks of `most` rows make full use of the registers.
template <int most, int registers>
void MultiplyColumns(Factor a, Matrix b, Matrix sum, int64_t rows, int64_t depth, bool adds) {
  const auto multiply = [&]<int count>() {
    MultiplyBlock<count, registers>(a, b, sum, depth, adds);
    a.data += count * a.row;
    sum.data += count * sum.row;
    rows -= count;
  };
  while (rows >= most) multiply.template operator()<most>();
  while (rows >= 4) multiply.template operator()<4>();
  while (rows > 0) multiply.template operator()<1>();
}

/// sum (rows, columns) = a (rows, depth) times b (depth, columns), or += if `adds`. Each element is
/// summed in the order of k. REQUIRES: columns % 16 == 0.
void Multiply(Factor a, Matrix b, Matrix sum, int64_t rows, int64_t columns, int64_t depth,
              bool adds) {
  for (int64_t n = 0; n < columns;) {
    const int64_t registers = std::min<int64_t>((columns - n) / kLanes, 4);
    constexpr std::array kByRegisters = {MultiplyColumns<16, 1>, MultiplyColumns<12, 2>,
                                         MultiplyColumns<8, 3>, MultiplyColumns<6, 4>};
    kByRegisters[registers - 1](a, {b.data + n, b.row}, {sum.data + n, sum.row}, rows, depth, adds);
    n += registers * kLanes;
  }
}

// ---- Convolutions

/// The rows of tiles begin..end-1 of a batch. Rows are numbered through all images of the batch.
struct Block {
  const Sizes& sizes;
  int64_t begin, end;

  int64_t tiles() const { return (end - begin) * sizes.row_tiles(); }

  /// Calls f(number of the image, row of tiles, number of the row's first tile within the block).
  template <class F>
  void ForEachRow(const F& f) const {
    for (int64_t i = begin; i < end; ++i) {
      f(i / sizes.tile_rows(), TileRow{i % sizes.tile_rows() * 2, sizes.height, sizes.width},
        (i - begin) * sizes.row_tiles());
    }
  }
};

std::vector<Block> BlocksOf(const Sizes& sizes) {
  const int64_t rows = sizes.images * sizes.tile_rows();
  const int64_t step = sizes.block_rows();
  std::vector<Block> blocks;
  for (int64_t row = 0; row < rows; row += step) {
    blocks.push_back({sizes, row, std::min(row + step, rows)});
  }
  return blocks;
}

int64_t ChannelsAtOnce(int64_t channels, int64_t depth) {
  return winograd::ChannelsAtOnce(channels, depth, at::get_num_threads());
}

/// Calls f(begin, end) for `at_once` channels at a time, on all threads.
template <class F>
void ForSome(int64_t channels, int64_t at_once, const F& f) {
  at::parallel_for(0, (channels + at_once - 1) / at_once, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      f(i * at_once, std::min((i + 1) * at_once, channels));
    }
  });
}

/// Computes y, the convolution of x with weight, for the tiles of a block. If `turned`, x is the
/// gradient of a convolution's output and y that of its input; the block's sizes then call the
/// channels of x inputs and those of y outputs.
void ConvolveBlock(const Block& block, const float* x, const float* weight, bool turned,
                   const float* bias, float* y) {
  const Sizes& sizes = block.sizes;
  const int64_t inputs = sizes.inputs, outputs = sizes.outputs, area = sizes.height * sizes.width;
  const int64_t row = RoundedUp(block.tiles()), plane = PlaneOf(inputs, row);
  const at::Tensor transformed = Scratch(kPlaces * plane);
  float* const v = DataOf(transformed);
  ForSome(inputs, 1, [&](int64_t c, int64_t) {
    for (int p = 0; p < kPlaces; ++p) {
      std::fill_n(v + p * plane + c * row + block.tiles(), row - block.tiles(), 0.0F);
    }
    block.ForEachRow([&](int64_t image, TileRow tiles, int64_t first) {
      TransformInput(x + (image * inputs + c) * area, tiles, v + c * row + first, plane);
    });
  });
  const int64_t at_once = ChannelsAtOnce(outputs, inputs);
  ForSome(outputs, at_once, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    const int64_t u_plane = PlaneOf(count, inputs), m_plane = PlaneOf(count, row);
    const at::Tensor weights = Scratch(kPlaces * u_plane), products = Scratch(kPlaces * m_plane);
    float *const u = DataOf(weights), *const m = DataOf(products);
    // The weights in memory are (outputs, inputs), or (inputs, outputs) if turned.
    const int64_t rows = turned ? inputs : count, columns = turned ? count : inputs;
    for (int64_t r = 0; r < rows; ++r) {
      const float* from = weight + (turned ? r * outputs + begin : (begin + r) * inputs) * kWindow;
      for (int64_t c = 0; c < columns; c += kLanes) {
        TransformWindows(from + c * kWindow, turned, u + r * columns + c, u_plane);
      }
    }
    for (int p = 0; p < kPlaces; ++p) {
      const Factor a = {u + p * u_plane, turned ? 1 : columns, turned ? columns : 1};
      Multiply(a, {v + p * plane, row}, {m + p * m_plane, row}, count, row, inputs, false);
    }
    for (int64_t k = 0; k < count; ++k) {
      block.ForEachRow([&](int64_t image, TileRow tiles, int64_t first) {
        OutputOf(m + k * row + first, m_plane, tiles, bias ? bias[begin + k] : 0,
                 y + (image * outputs + begin + k) * area);
      });
    }
  });
}

/// Writes the transformed input as to[place][tile][channel], 16 channels at a time.
void TransformToChannels(const Block& block, const float* x, float* to, int64_t plane) {
  const Sizes& sizes = block.sizes;
  const int64_t row = RoundedUp(block.tiles()), line_plane = PlaneOf(kLanes, row);
  ForSome(sizes.inputs, kLanes, [&](int64_t begin, int64_t end) {
    const at::Tensor line = Scratch(kPlaces * line_plane);
    for (int64_t c = begin; c < end; ++c) {
      block.ForEachRow([&](int64_t image, TileRow tiles, int64_t first) {
        TransformInput(x + (image * sizes.inputs + c) * sizes.height * sizes.width, tiles,
                       DataOf(line) + (c - begin) * row + first, line_plane);
      });
    }
    for (int p = 0; p < kPlaces; ++p) {
      for (int64_t tile = 0; tile < block.tiles(); tile += kLanes) {
        StoreTransposed(DataOf(line) + p * line_plane + tile, row,
                        to + p * plane + tile * sizes.inputs + begin, sizes.inputs);
      }
    }
  });
}

/// True in a dry run, which has taken the scratch memory, and computes nothing.
bool IsDry(int64_t scratch_floats) {
  if (DryRun::IsOn()) Scratch(scratch_floats);
  return DryRun::IsOn();
}

}  // namespace

bool Computes(const at::Tensor& x, const at::Tensor& weight) {
  const auto fits = [](const at::Tensor& t) {
    return t.is_cpu() && t.scalar_type() == at::kFloat && t.dim() == 4 && t.is_contiguous();
  };
  if (at::GradMode::is_enabled() || !HasAvx512()) return false;
  if (!fits(x) || !fits(weight)) return false;
  return weight.size(2) == 3 && weight.size(3) == 3 && Suits(SizesOf(x, weight));
}

at::Tensor Convolve(const at::Tensor& x, const at::Tensor& weight,
                    const std::optional<at::Tensor>& bias) {
  STRATA_CHECK(Computes(x, weight)) << x.sizes() << " and " << weight.sizes();
  const Sizes sizes = SizesOf(x, weight);
  at::Tensor y = at::empty({sizes.images, sizes.outputs, sizes.height, sizes.width}, x.options());
  if (IsDry(ConvolutionScratch(sizes, at::get_num_threads()))) return y;
  const at::Tensor b = bias ? bias->contiguous() : at::Tensor();
  for (const Block& block : BlocksOf(sizes)) {
    ConvolveBlock(block, x.const_data_ptr<float>(), weight.const_data_ptr<float>(),
                  /*turned=*/false, b.defined() ? b.const_data_ptr<float>() : nullptr, DataOf(y));
  }
  return y;
}

at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& weight) {
  const at::Tensor from = dy.contiguous();
  const Sizes sizes = {dy.size(0), dy.size(1), weight.size(1), dy.size(2), dy.size(3)};
  at::Tensor dx = at::empty({sizes.images, sizes.outputs, sizes.height, sizes.width}, dy.options());
  if (IsDry(ConvolutionScratch(sizes, at::get_num_threads()))) return dx;
  for (const Block& block : BlocksOf(sizes)) {
    ConvolveBlock(block, from.const_data_ptr<float>(), weight.const_data_ptr<float>(),
                  /*turned=*/true, /*bias=*/nullptr, DataOf(dx));
  }
  return dx;
}

void AddWeightGradient(const at::Tensor& dweight, const at::Tensor& dy, const at::Tensor& x,
                       bool overwrites) {
  const at::Tensor gradient = dy.contiguous();
  const Sizes sizes = SizesOf(x, dweight);
  if (IsDry(WeightGradientScratch(sizes, at::get_num_threads()))) return;
  const int64_t inputs = sizes.inputs, outputs = sizes.outputs, area = sizes.height * sizes.width;
  const std::vector<Block> blocks = BlocksOf(sizes);
  const int64_t row = RoundedUp(blocks.front().tiles()), plane = PlaneOf(row, inputs);
  const int64_t at_once = ChannelsAtOnce(outputs, inputs);
  const int64_t u_plane = PlaneOf(outputs, inputs);
  const at::Tensor transformed = Scratch(kPlaces * plane), sums = Scratch(kPlaces * u_plane);
  float *const v = DataOf(transformed), *const u = DataOf(sums), *const to = DataOf(dweight);
  for (const Block& block : blocks) {
    const bool is_first = &block == &blocks.front(), is_last = &block == &blocks.back();
    TransformToChannels(block, x.const_data_ptr<float>(), v, plane);
    ForSome(outputs, at_once, [&](int64_t begin, int64_t end) {
      const int64_t count = end - begin, dy_plane = PlaneOf(count, row);
      const at::Tensor gradients = Scratch(kPlaces * dy_plane);
      for (int64_t k = 0; k < count; ++k) {
        block.ForEachRow([&](int64_t image, TileRow tiles, int64_t first) {
          TransformOutputGradient(
              gradient.const_data_ptr<float>() + (image * outputs + begin + k) * area, tiles,
              DataOf(gradients) + k * row + first, dy_plane);
        });
      }
      for (int p = 0; p < kPlaces; ++p) {
        Multiply({DataOf(gradients) + p * dy_plane, row, 1}, {v + p * plane, inputs},
                 {u + p * u_plane + begin * inputs, inputs}, count, inputs, block.tiles(),
                 !is_first);
      }
      if (!is_last) return;
      for (int64_t i = begin * inputs; i < end * inputs; i += kLanes) {
        AddGradientOfWindows(u + i, u_plane, overwrites, to + i * kWindow);
      }
    });
  }
}

}  // namespace strata::winograd
