// Reductions of tensors whose bits depend only on the tensor, not on the number of threads or the
// cuts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace strata {

/// Collects numbers that the host needs. Those on an accelerator are fetched together, so that the
/// host waits only once.
class HostFetch {
 public:
  /// Copies the elements of `numbers`, as doubles, into `places`, one after the other: from the
  /// host at once, from a device in Fetch(), until which the places must stay valid.
  void Want(const at::Tensor& numbers, const std::vector<std::span<double>>& places);
  void Want(const at::Tensor& numbers, std::span<double> places) {
    Want(numbers, std::vector<std::span<double>>{places});
  }
  void Fetch();

 private:
  static void Take(const at::Tensor& host, const std::vector<std::span<double>>& places);

  std::vector<at::Tensor> wanted_;
  std::vector<std::span<double>> places_;
};

/// The number of elements of a chunk. The squares of each chunk are summed first, then these sums
/// are added in order. So a rank that has only some chunks of a tensor can sum those by itself.
inline constexpr int64_t kSquareChunk = 1 << 16;
inline int64_t SquareChunks(int64_t elements) {
  return (elements + kSquareChunk - 1) / kSquareChunk;
}

/// Computes the sum of squares of every chunk in double. On the CPU, for all types but float64, it
/// uses a fixed pattern of partial sums; chunks run in parallel. (linalg_vector_norm in fp32 is off
/// by 4.5e-3 on 57M values, and in double it takes ten times as long.) REQUIRES: `tensor` is
/// contiguous, `sums` has an element for each chunk.
void ChunkSquares(const at::Tensor& tensor, std::span<double> sums);
/// The sum of squares of all chunks, added in order.
double SumOfSquares(const at::Tensor& tensor);

/// ChunkSquares() for the gradients of a stage, which stay at the same place from step to step. An
/// accelerator runs two kernels for all neighbouring gradients, up to 64 MiB, because one kernel
/// for each parameter costs the host more time than the sums take: 1.1 ms for the 149 parameters of
/// GPT-2.
class GradientSquares {
 public:
  struct Part {
    at::Tensor gradient;  ///< one dim
    int64_t place = 0;    ///< the index of its first chunk's sum
  };
  /// A contiguous range of memory, divided into segments: chunks, and padding between parameters.
  struct Run {
    static constexpr int64_t kPadding = -1;
    at::Tensor elements;  ///< one dim
    at::Tensor bounds;    ///< of its segments: one more than `places`
    /// For each segment the index of its sum, or kPadding.
    std::vector<int64_t> places;
  };
  /// The most elements of a run, because the squares of a run take memory.
  static constexpr int64_t kMostOnAccelerator = 1 << 24, kMostOnHost = 1 << 18;

  GradientSquares() = default;
  /// `parts`, in any order, share runs where they are neighbours in memory.
  explicit GradientSquares(const std::vector<Part>& parts);
  /// Writes the sums of the chunks into `squares`. Those of an accelerator arrive with
  /// fetch.Fetch(), until which this object must exist.
  void Take(std::span<double> squares, HostFetch& fetch);
  const std::vector<Run>& runs() const { return runs_; }

 private:
  std::vector<Part> in_lanes_;
  std::vector<Run> runs_;
  double zero_ = 0;  // receives the sums of padding
};

/// A digest of the tensor's bits, 16 hex digits.
std::string BitDigest(const at::Tensor& tensor);

}  // namespace strata
