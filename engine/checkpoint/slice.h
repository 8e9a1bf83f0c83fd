// Slice: a part of a tensor's elements. It is a box, as a rank of the model axis holds it, or a
// range of a box's elements, as a rank that shards optimizer states (ZeRO) holds it.
//
//   A tensor (4, 6). The slice is the elements 2 to 6 of the box [0:4, 3:6], "flat[2:7]":
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
  std::vector<int64_t> offset;  ///< of the box in the tensor, per dim
  std::vector<int64_t> shape;   ///< of the box, per dim
  /// The first element that is held, counted row-major within the box.
  int64_t begin = 0;
  int64_t count = 0;  ///< number of elements that are held

  /// All elements of a tensor.
  static Slice Whole(std::vector<int64_t> shape);
  /// All elements of a box.
  static Slice Box(std::vector<int64_t> offset, std::vector<int64_t> shape);

  /// True if the slice is all of its box.
  bool is_box() const;
  /// True if the slice is all of a tensor with this shape.
  bool is_whole(std::span<const int64_t> tensor) const;
  /// The slice as numpy would write it: "[0:4, 3:6]", "[0:4, 3:6].flat[2:7]".
  std::string ToString() const;
  bool operator==(const Slice&) const = default;
};

/// Returns "" if the slices together hold each element of a tensor once; otherwise what is wrong.
/// `tensor` is the tensor's shape; its sizes are >= 0 and their product fits an int64. The slices
/// may come from a hostile file and hold any numbers.
std::string TroubleWithSlices(std::span<const int64_t> tensor, const std::vector<Slice>& slices);

/// Calls copy(i, j, n) for every run of n elements that both slices hold: elements i to i+n-1 of
/// `from` are elements j to j+n-1 of `to`. Elements are counted from the slice's first one.
/// REQUIRES: `to` is a box, and both slices lie within the same tensor.
void ForEachRun(const Slice& from, const Slice& to,
                const std::function<void(int64_t i, int64_t j, int64_t n)>& copy);

}  // namespace strata
