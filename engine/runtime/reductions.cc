#include "engine/runtime/reductions.h"

#include <ATen/Parallel.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <array>
#include <numeric>
#include <string_view>
#include <vector>

#include "engine/base/value.h"

namespace strata {
namespace {

constexpr int64_t kChunk = 1 << 16;
constexpr int kLanes = 16;

double SumOfSquares(const float* values, int64_t count) {
  std::array<double, kLanes> lanes = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  double sum = std::accumulate(lanes.begin(), lanes.end(), 0.0);
  for (; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

}  // namespace

double SumOfSquares(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu() || tensor.scalar_type() != at::kFloat) {
    const double norm =
        at::linalg_vector_norm(tensor, 2, at::OptionalIntArrayRef(), false, at::kDouble)
            .item<double>();
    return norm * norm;
  }
  const float* values = tensor.const_data_ptr<float>();
  const int64_t count = tensor.numel();
  std::vector<double> sums((count + kChunk - 1) / kChunk);
  at::parallel_for(0, static_cast<int64_t>(sums.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t start = chunk * kChunk;
      sums[chunk] = SumOfSquares(values + start, std::min(kChunk, count - start));
    }
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

std::string BitDigest(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().cpu().contiguous();
  return Digest(std::string_view(static_cast<const char*>(host.const_data_ptr()), host.nbytes()));
}

}  // namespace strata
