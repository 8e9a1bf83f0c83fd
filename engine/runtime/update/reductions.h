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
  /// `places` gets the elements of `numbers` as double: those of the host now, others by Fetch().
  /// It must live until then.
  void Want(const at::Tensor& numbers, std::span<double> places);
  /// The same of their squares, which the host computes: a device has enough to launch.
  void WantSquares(const at::Tensor& roots, std::span<double> places);
  void Fetch();

 private:
  /// Of one type of numbers each, so that the device puts them together in one kernel.
  struct Wanted {
    bool are_roots = false;
    std::vector<at::Tensor> tensors;
    std::vector<std::span<double>> places;
  };
  static void Add(Wanted& wanted, const at::Tensor& flat, std::span<double> places);
  /// Gives where the next ones are.
  static const double* Take(const Wanted& wanted, const double* next, std::span<double> places);

  Wanted numbers_, roots_ = {.are_roots = true, .tensors = {}, .places = {}};
};

/// The elements of a chunk. The squares of each chunk are summed, then the sums are added in order.
/// So a rank that has only some chunks of a tensor can sum those by itself.
inline constexpr int64_t kSquareChunk = 1 << 16;
inline int64_t SquareChunks(int64_t elements) {
  return (elements + kSquareChunk - 1) / kSquareChunk;
}

/// The sum of squares of every chunk, in double. fp32 on the CPU: a fixed pattern of partial sums;
/// chunks run in parallel. (linalg_vector_norm in fp32 is off by 4.5e-3 on 57M values, and in
/// double takes ten times as long.) REQUIRES: contiguous; a place for each chunk.
/// An accelerator's are there after fetch.Fetch().
void ChunkSquares(const at::Tensor& tensor, std::span<double> sums, HostFetch& fetch);
/// Of all chunks, added in order.
double SumOfSquares(const at::Tensor& tensor);

/// 16 hex digits of the tensor's bits.
std::string BitDigest(const at::Tensor& tensor);

}  // namespace strata
