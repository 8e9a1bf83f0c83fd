// A register holds 16 neighbouring outputs of a row. For each element of the window the kernel
// gathers their 16 input values and keeps the larger ones with their indices. That is one gather
// per window element and 16 outputs; no input is copied. The backward is ATen's, from the indices.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/kernels/max_pool.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <immintrin.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "engine/base/tensors/dry_run.h"
#include "engine/layers/kernels/avx512.h"

namespace strata {
namespace {

constexpr int64_t kLanes = 16;  // floats in a register

struct Plane {
  int64_t height, width;
};

/// Finds the largest value of every window of one plane, and its index in the plane. As in ATen,
/// windows are walked row by row, the first of equal values wins, and a NaN wins over all.
STRATA_AVX512 void PoolPlane(const float* in, const Plane& from, const PoolWindows& w, float* out,
                             int64_t* indices, const Plane& to) {
  const __m512i iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i stride = _mm512_set1_epi32(static_cast<int>(w.stride[1]));
  const __m512i width = _mm512_set1_epi32(static_cast<int>(from.width));
  for (int64_t row = 0; row < to.height; ++row) {
    for (int64_t column = 0; column < to.width; column += kLanes) {
      const int64_t count = std::min(kLanes, to.width - column);
      const auto lanes = static_cast<__mmask16>((1 << count) - 1);
      const __m512i columns = _mm512_add_epi32(iota, _mm512_set1_epi32(static_cast<int>(column)));
      const __m512i first = _mm512_sub_epi32(_mm512_mullo_epi32(columns, stride),
                                             _mm512_set1_epi32(static_cast<int>(w.padding[1])));
      __m512 best = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
      __m512i best_index = _mm512_setzero_si512();
      __mmask16 seen = 0;
      for (int64_t i = 0; i < w.kernel[0]; ++i) {
        const int64_t y = row * w.stride[0] - w.padding[0] + i * w.dilation[0];
        if (y < 0 || y >= from.height) continue;
        const __m512i row_begin = _mm512_set1_epi32(static_cast<int>(y * from.width));
        for (int64_t j = 0; j < w.kernel[1]; ++j) {
          const __m512i x =
              _mm512_add_epi32(first, _mm512_set1_epi32(static_cast<int>(j * w.dilation[1])));
          const __mmask16 inside = _mm512_mask_cmplt_epi32_mask(
              _mm512_mask_cmpge_epi32_mask(lanes, x, _mm512_setzero_si512()), x, width);
          const __m512i index = _mm512_add_epi32(row_begin, x);
          const __m512 value = _mm512_mask_i32gather_ps(best, inside, index, in, sizeof(float));
          const auto larger = static_cast<__mmask16>(
              _mm512_mask_cmp_ps_mask(inside, value, best, _CMP_GT_OQ) |
              _mm512_mask_cmp_ps_mask(inside, value, value, _CMP_UNORD_Q) | (inside & ~seen));
          best = _mm512_mask_mov_ps(best, larger, value);
          best_index = _mm512_mask_mov_epi32(best_index, larger, index);
          seen |= inside;
        }
      }
      const int64_t place = row * to.width + column;
      _mm512_mask_storeu_ps(out + place, lanes, best);
      alignas(64) int32_t found[kLanes];
      _mm512_store_epi32(found, best_index);
      for (int64_t i = 0; i < count; ++i) indices[place + i] = found[i];
    }
  }
}

/// PyTorch's output size along one dim. With ceil_mode, a last window that would begin in the
/// padding behind the image is left out.
int64_t OutputSize(int64_t input, size_t dim, const PoolWindows& w) {
  const int64_t last = input + 2 * w.padding[dim] - w.dilation[dim] * (w.kernel[dim] - 1) - 1;
  const int64_t stride = w.stride[dim];
  if (!w.ceil_mode) return last / stride + 1;
  const int64_t size = (last + stride - 1) / stride + 1;
  return (size - 1) * stride >= input + w.padding[dim] ? size - 1 : size;
}

Plane OutputOf(const Plane& in, const PoolWindows& w) {
  return {OutputSize(in.height, 0, w), OutputSize(in.width, 1, w)};
}

bool Fits(const at::Tensor& x) {
  return HasAvx512() && x.device().is_cpu() && x.scalar_type() == at::kFloat && x.dim() == 4 &&
         x.is_contiguous() && x.numel() > 0 &&
         x.size(2) * x.size(3) < std::numeric_limits<int32_t>::max();
}

struct Pooled {
  at::Tensor values, indices;
};

Pooled Pool(const at::Tensor& x, const PoolWindows& windows) {
  const Plane from = {x.size(2), x.size(3)}, to = OutputOf(from, windows);
  const auto sizes = {x.size(0), x.size(1), to.height, to.width};
  const Pooled pooled = {at::empty(sizes, x.options()), at::empty(sizes, at::kLong)};
  if (DryRun::IsOn()) return pooled;
  const float* in = x.const_data_ptr<float>();
  float* out = pooled.values.mutable_data_ptr<float>();
  int64_t* indices = pooled.indices.mutable_data_ptr<int64_t>();
  at::parallel_for(0, x.size(0) * x.size(1), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = i * to.height * to.width;
      PoolPlane(in + i * from.height * from.width, from, windows, out + place, indices + place, to);
    }
  });
  return pooled;
}

class MaxPoolNode : public torch::autograd::Node {
 public:
  MaxPoolNode(const at::Tensor& x, at::Tensor indices, const PoolWindows& windows)
      : x_(x, /*is_output=*/false), indices_(std::move(indices)), windows_(windows) {
    set_next_edges(torch::autograd::collect_next_edges(x));
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    if (!grads[0].defined()) return {at::Tensor()};
    const PoolWindows& w = windows_;
    return {at::max_pool2d_with_indices_backward(grads[0], x_.unpack(), w.kernel, w.stride,
                                                 w.padding, w.dilation, w.ceil_mode, indices_)};
  }

  void release_variables() override {
    x_.reset_data();
    indices_.reset();
  }

 private:
  torch::autograd::SavedVariable x_;  // only its shape is read
  at::Tensor indices_;
  const PoolWindows windows_;
};

}  // namespace

at::Tensor MaxPool2d(const at::Tensor& x, const PoolWindows& w) {
  if (!Fits(x)) return at::max_pool2d(x, w.kernel, w.stride, w.padding, w.dilation, w.ceil_mode);
  Pooled pooled = Pool(x, w);
  if (at::GradMode::is_enabled() && x.requires_grad()) {
    const std::shared_ptr<MaxPoolNode> node(new MaxPoolNode(x, std::move(pooled.indices), w),
                                            torch::autograd::deleteNode);
    torch::autograd::set_history(pooled.values, node);
  }
  return pooled.values;
}

}  // namespace strata
