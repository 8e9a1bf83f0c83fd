// Slice: which elements of a tensor somebody holds. A rank of the model axis holds a box of it; of
// a box, a rank that shards optimizer states (ZeRO) holds a range of its elements.
//
//   a tensor (4, 6), the box [0:4, 3:6], of which the flat elements 2 to 7 are held:
//     . . . . . x
//     . . . x x x
//     . . . x . .
//     . . . . . .
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace strata {

struct Slice {
  std::vector<int64_t> offset;  ///< of the box in the tensor, for each dim
  std::vector<int64_t> shape;   ///< of the box
  int64_t begin = 0;            ///< first element of the box, in row-major order
  int64_t count = 0;            ///< elements

  /// All of a tensor.
  static Slice Whole(std::vector<int64_t> shape);
  /// All of a box.
  static Slice Box(std::vector<int64_t> offset, std::vector<int64_t> shape);

  /// Whether all of the box is meant.
  bool is_box() const;
  bool is_whole(std::span<const int64_t> tensor) const;
  /// As numpy would write it: "[0:4, 3:6]", "[0:4, 3:6].flat[2:7]".
  std::string ToString() const;
  bool operator==(const Slice&) const = default;
};

/// Why these are not all elements of a tensor, each once; "" when they are. The slices may be
/// anything that a hostile file says; the sizes of the tensor's shape are >= 0 and fit in memory.
std::string TroubleWithSlices(std::span<const int64_t> tensor, const std::vector<Slice>& slices);

/// Calls `copy(i, j, n)` for every run of elements that both hold: element i of `from` (counted
/// from its first one) and those after it are element j of `to`. REQUIRES: `to` is a box, and both
/// lie within the same tensor.
void ForEachRun(const Slice& from, const Slice& to,
                const std::function<void(int64_t i, int64_t j, int64_t n)>& copy);

}  // namespace strata
