// Numbers about tensors whose bits depend on nothing but the tensor: not on threads, not on cuts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace strata {

/// Numbers that the host wants. Those of an accelerator come together, so that it waits once.
class HostFetch {
 public:
  /// `places` get the elements of `numbers` as double, one behind the other: those of the host now,
  /// others by Fetch(). They must live until then.
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

/// The elements of a chunk. The squares of each chunk are summed, then the sums are added in order.
/// So a rank that has only some chunks of a tensor can sum those by itself.
inline constexpr int64_t kSquareChunk = 1 << 16;
inline int64_t SquareChunks(int64_t elements) {
  return (elements + kSquareChunk - 1) / kSquareChunk;
}

/// The sum of squares of every chunk, in double. On the CPU, but for float64: a fixed pattern of
/// partial sums; chunks run in parallel. (linalg_vector_norm in fp32 is off by 4.5e-3 on 57M
/// values, and in double takes ten times as long.) REQUIRES: contiguous; a place for each chunk.
void ChunkSquares(const at::Tensor& tensor, std::span<double> sums);
/// Of all chunks, added in order.
double SumOfSquares(const at::Tensor& tensor);

/// The same of the gradients of a stage, which stay where they are from step to step. An
/// accelerator has two kernels for all gradients that lie one behind the other, up to 64 MiB, where
/// one for each parameter costs the host more than the sums: GPT-2 had 149 of them, 1.1 ms.
class GradientSquares {
 public:
  struct Part {
    at::Tensor gradient;  ///< one dim
    int64_t place = 0;    ///< of its first chunk's sum
  };
  /// What lies in one place, cut into chunks and the padding between parameters.
  struct Run {
    static constexpr int64_t kPadding = -1;
    at::Tensor elements;          ///< one dim
    at::Tensor bounds;            ///< of its segments: one more than these
    std::vector<int64_t> places;  ///< of each one's sum, or kPadding
  };
  /// Elements of a run, since its squares take memory.
  static constexpr int64_t kMostOnAccelerator = 1 << 24, kMostOnHost = 1 << 18;

  GradientSquares() = default;
  /// In the order in which they lie; others are summed one by one.
  explicit GradientSquares(const std::vector<Part>& parts);
  /// Fills the places of the chunks; an accelerator's by fetch.Fetch(), until which this object
  /// must live.
  void Take(std::span<double> squares, HostFetch& fetch);
  const std::vector<Run>& runs() const { return runs_; }

 private:
  std::vector<Part> in_lanes_;
  std::vector<Run> runs_;
  double zero_ = 0;  // the sum of paddings
};

/// 16 hex digits of the tensor's bits.
std::string BitDigest(const at::Tensor& tensor);

}  // namespace strata
