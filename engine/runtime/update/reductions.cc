// Sums of squares with equal bits on every machine. On the CPU value i is added to partial sum i
// mod 16 (a lane), and the 16 partial sums are added in order at the end; the compiler may
// vectorise this without changing any sum. On accelerators, neighbouring chunks are squared and
// summed together by two kernels (segment_reduce).
#include "engine/runtime/update/reductions.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/segment_reduce.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/value.h"
#include "engine/layers/kernels/avx512.h"
#include "engine/runtime/stage/flat_parameters.h"

namespace strata {
namespace {

constexpr int kLanes = 16;

using Lanes = std::array<double, kLanes>;

/// Adds the square of value i to lane i mod 16. `count` is a multiple of 16. The result does not
/// depend on whether the compiler fuses multiplication and addition, because the square of a float
/// is exact in double.
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

/// True if the squares are summed in lanes on the CPU.
bool IsInLanes(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() != at::kDouble;
}

/// Joins chunks, given in the order of memory, to runs.
class RunBuilder {
 public:
  using Run = GradientSquares::Run;

  void Add(const at::Tensor& chunk, int64_t place) {
    const int64_t begin = chunk.storage_offset(), end = begin + chunk.numel();
    if (!GoesOn(chunk)) {
      Close();
      begin_ = begin;
      bounds_ = {0};
    } else if (begin - begin_ > bounds_.back()) {
      AddSegment(begin, Run::kPadding);
    }
    AddSegment(end, place);
    last_ = chunk;
  }
  std::vector<Run> Finish() {
    Close();
    return std::move(runs_);
  }

 private:
  /// True if the chunk begins where the last one ends, or after its padding.
  bool GoesOn(const at::Tensor& chunk) const {
    if (!last_.defined() || !chunk.is_alias_of(last_) || chunk.dtype() != last_.dtype()) {
      return false;
    }
    const int64_t gap = chunk.storage_offset() - begin_ - bounds_.back();
    const int64_t size = chunk.storage_offset() + chunk.numel() - begin_;
    const int64_t most =
        chunk.is_cpu() ? GradientSquares::kMostOnHost : GradientSquares::kMostOnAccelerator;
    return gap >= 0 && gap < FlatParameters::kPadding && size <= most;
  }
  void AddSegment(int64_t end, int64_t place) {
    bounds_.push_back(end - begin_);
    places_.push_back(place);
  }
  void Close() {
    if (!last_.defined()) return;
    runs_.push_back({.elements = last_.as_strided({bounds_.back()}, {1}, begin_),
                     .bounds = at::tensor(bounds_).to(last_.device()),
                     .places = std::exchange(places_, {})});
  }

  std::vector<Run> runs_;
  at::Tensor last_;              // the last chunk of the current run
  int64_t begin_ = 0;            // where the run begins in its storage
  std::vector<int64_t> bounds_;  // of the run's segments
  std::vector<int64_t> places_;
};

/// The parts of one storage one after the other, by their place in it. Parts come in the order of
/// layers, which in half precision alternate between two buffers: norms stay in float32.
std::vector<GradientSquares::Part> InOrderOfMemory(std::vector<GradientSquares::Part> parts) {
  std::map<const c10::StorageImpl*, size_t> storages;  // numbered as they come
  const auto place = [&](const GradientSquares::Part& part) {
    const auto* const storage = part.gradient.storage().unsafeGetStorageImpl();
    return std::pair(storages.try_emplace(storage, storages.size()).first->second,
                     part.gradient.storage_offset());
  };
  for (const GradientSquares::Part& part : parts) place(part);
  std::ranges::stable_sort(parts, {}, place);
  return parts;
}

/// CUDA's kernels add in a tree, for which float32 is precise enough.
at::ScalarType TypeOfSquares(const at::Tensor& tensor) {
  const bool adds_well = tensor.is_cuda() && tensor.scalar_type() != at::kDouble;
  return adds_well ? at::kFloat : at::kDouble;
}

}  // namespace

void HostFetch::Want(const at::Tensor& numbers, const std::vector<std::span<double>>& places) {
  const at::Tensor flat = numbers.reshape({-1}).to(at::kDouble);
  if (flat.is_cpu()) return Take(flat, places);
  wanted_.push_back(flat);
  places_.insert(places_.end(), places.begin(), places.end());
}

void HostFetch::Take(const at::Tensor& host, const std::vector<std::span<double>>& places) {
  const double* next = host.const_data_ptr<double>();
  const double* const end = next + host.numel();
  for (const std::span<double>& place : places) {
    STRATA_CHECK(static_cast<int64_t>(place.size()) <= end - next) << host.numel();
    std::copy_n(next, place.size(), place.begin());
    next += place.size();
  }
  STRATA_CHECK(next == end) << end - next << " numbers without a place";
}

void HostFetch::Fetch() {
  if (wanted_.empty()) return;
  Take(at::cat(std::exchange(wanted_, {})).cpu(), std::exchange(places_, {}));
}

GradientSquares::GradientSquares(const std::vector<Part>& parts) {
  RunBuilder builder;
  for (const Part& part : InOrderOfMemory(parts)) {
    if (IsInLanes(part.gradient)) {
      in_lanes_.push_back(part);
      continue;
    }
    const int64_t size = part.gradient.numel();
    for (int64_t begin = 0; begin < size; begin += kSquareChunk) {
      builder.Add(part.gradient.narrow(0, begin, std::min(kSquareChunk, size - begin)),
                  part.place + begin / kSquareChunk);
    }
  }
  runs_ = builder.Finish();
}

void GradientSquares::Take(std::span<double> squares, HostFetch& fetch) {
  for (const Part& part : in_lanes_) {
    const at::Tensor& gradient = part.gradient;
    ChunkSquares(gradient, squares.subspan(part.place, SquareChunks(gradient.numel())));
  }
  for (const Run& run : runs_) {
    const at::Tensor values = run.elements.to(TypeOfSquares(run.elements));
    const at::Tensor sums =
        at::segment_reduce(values.square(), "sum", /*lengths=*/{}, /*indices=*/{}, run.bounds,
                           /*axis=*/0, /*unsafe=*/true);
    std::vector<std::span<double>> places;
    for (const int64_t place : run.places) {
      double& to = place == Run::kPadding ? zero_ : squares[place];
      places.emplace_back(&to, 1);
    }
    fetch.Want(sums, places);
  }
}

void ChunkSquares(const at::Tensor& tensor, std::span<double> sums) {
  STRATA_CHECK(static_cast<int64_t>(sums.size()) == SquareChunks(tensor.numel())) << sums.size();
  if (!IsInLanes(tensor)) {
    HostFetch fetch;
    GradientSquares({{tensor.view(-1), 0}}).Take(sums, fetch);
    fetch.Fetch();
    return;
  }
  const bool is_float = tensor.scalar_type() == at::kFloat;
  const float* values = is_float ? tensor.const_data_ptr<float>() : nullptr;
  const int64_t count = tensor.numel();
  at::parallel_for(0, static_cast<int64_t>(sums.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t start = chunk * kSquareChunk, size = std::min(kSquareChunk, count - start);
      at::Tensor exact;
      if (!is_float) exact = tensor.view(-1).narrow(0, start, size).to(at::kFloat);
      const float* first = is_float ? values + start : exact.const_data_ptr<float>();
      sums[chunk] = SumOfSquares(first, size);
    }
  });
}

double SumOfSquares(const at::Tensor& tensor) {
  std::vector<double> sums(SquareChunks(tensor.numel()));
  ChunkSquares(tensor, sums);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

std::string BitDigest(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().cpu().contiguous();
  return Digest(std::string_view(static_cast<const char*>(host.const_data_ptr()), host.nbytes()));
}

}  // namespace strata
