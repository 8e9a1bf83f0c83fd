// Sums in 16 lanes, with equal bits on every machine.
#include "engine/runtime/update/reductions.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/value/value.h"
#include "engine/layers/kernels/avx512.h"

namespace strata {
namespace {

constexpr int kLanes = 16;

using Lanes = std::array<double, kLanes>;

/// Adds the square of value i to lane i mod 16. `count` is a multiple of 16. Whether the
/// compiler fuses the two operations does not matter: the square of a float is exact in double.
STRATA_WIDEST void AddSquares(const float* values, int64_t count, Lanes& lanes) {
  Lanes sums = lanes;
  for (int64_t i = 0; i < count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  lanes = sums;
}

double SumOfSquares(const float* values, int64_t count) {
  const int64_t whole = count / kLanes * kLanes;
  Lanes lanes = {};
  AddSquares(values, whole, lanes);
  double sum = std::accumulate(lanes.begin(), lanes.end(), 0.0);
  for (int64_t i = whole; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

/// On an accelerator one kernel does all whole chunks, another the rest. CUDA's add in a tree, for
/// which float32 is enough; in double they would copy the tensor first.
void GenericChunkSquares(const at::Tensor& tensor, std::span<double> sums, HostFetch& fetch) {
  const at::Tensor flat = tensor.view(-1);
  const int64_t whole = flat.numel() / kSquareChunk;
  const bool adds_well = tensor.is_cuda() && tensor.scalar_type() != at::kDouble;
  const at::ScalarType type = adds_well ? at::kFloat : at::kDouble;
  const auto take = [&](const at::Tensor& rows, int64_t first) {
    if (rows.numel() == 0) return;
    fetch.WantSquares(at::linalg_vector_norm(rows, 2, at::IntArrayRef{1}, false, type),
                      sums.subspan(first, rows.size(0)));
  };
  take(flat.narrow(0, 0, whole * kSquareChunk).view({whole, kSquareChunk}), 0);
  take(flat.narrow(0, whole * kSquareChunk, flat.numel() - whole * kSquareChunk).unsqueeze(0),
       whole);
}

}  // namespace

void HostFetch::Want(const at::Tensor& numbers, std::span<double> places) {
  Add(numbers_, numbers.reshape({-1}).to(at::kDouble), places);
}

void HostFetch::WantSquares(const at::Tensor& roots, std::span<double> places) {
  Add(roots_, roots.reshape({-1}), places);
}

void HostFetch::Add(Wanted& wanted, const at::Tensor& flat, std::span<double> places) {
  STRATA_CHECK(flat.numel() == static_cast<int64_t>(places.size())) << flat.numel();
  if (flat.is_cpu()) {
    Take(wanted, flat.to(at::kDouble).const_data_ptr<double>(), places);
    return;
  }
  wanted.tensors.push_back(flat);
  wanted.places.push_back(places);
}

const double* HostFetch::Take(const Wanted& wanted, const double* next, std::span<double> places) {
  for (double& place : places) {
    place = wanted.are_roots ? *next * *next : *next;
    ++next;
  }
  return next;
}

void HostFetch::Fetch() {
  std::vector<at::Tensor> all;
  for (Wanted* wanted : {&numbers_, &roots_}) {
    if (wanted->tensors.empty()) continue;
    all.push_back(at::cat(std::exchange(wanted->tensors, {})).to(at::kDouble));
  }
  if (all.empty()) return;
  const at::Tensor host = at::cat(all).cpu();
  const double* next = host.const_data_ptr<double>();
  for (Wanted* wanted : {&numbers_, &roots_}) {
    for (const std::span<double>& places : std::exchange(wanted->places, {})) {
      next = Take(*wanted, next, places);
    }
  }
}

void ChunkSquares(const at::Tensor& tensor, std::span<double> sums, HostFetch& fetch) {
  STRATA_CHECK(static_cast<int64_t>(sums.size()) == SquareChunks(tensor.numel())) << sums.size();
  if (!tensor.device().is_cpu() || tensor.scalar_type() != at::kFloat) {
    return GenericChunkSquares(tensor, sums, fetch);
  }
  const float* values = tensor.const_data_ptr<float>();
  const int64_t count = tensor.numel();
  at::parallel_for(0, static_cast<int64_t>(sums.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t start = chunk * kSquareChunk;
      sums[chunk] = SumOfSquares(values + start, std::min(kSquareChunk, count - start));
    }
  });
}

double SumOfSquares(const at::Tensor& tensor) {
  std::vector<double> sums(SquareChunks(tensor.numel()));
  HostFetch fetch;
  ChunkSquares(tensor, sums, fetch);
  fetch.Fetch();
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

std::string BitDigest(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().cpu().contiguous();
  return Digest(std::string_view(static_cast<const char*>(host.const_data_ptr()), host.nbytes()));
}

}  // namespace strata
