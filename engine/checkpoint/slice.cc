// Boxes and ranges of elements.
//
// TroubleWithSlices() checks that slices hold each element of a tensor once: the ranges of each box
// must fill it, no two boxes may overlap, and the sizes of the boxes must add up to the tensor's.
// It compares all pairs of boxes, so their number is limited.
//
// ForEachRun() finds the elements that a slice and a box share. The last dims in which both are
// equal are merged into one; the remaining dims are walked in rows along the last of them, and each
// row of `from` shares at most one run with `to`. The cost is one step per row of `from`.
#include "engine/checkpoint/slice.h"

#include <algorithm>
#include <map>

#include "engine/base/check.h"
#include "engine/base/fields/tensor_spec.h"
#include "engine/base/text.h"

namespace strata {
namespace {

/// The most boxes of one tensor. It is limited since every pair of boxes is compared.
constexpr size_t kMostBoxes = 1024;

bool LiesWithin(const Slice& slice, std::span<const int64_t> tensor) {
  if (slice.offset.size() != tensor.size() || slice.shape.size() != tensor.size()) return false;
  for (size_t dim = 0; dim < tensor.size(); ++dim) {
    const int64_t offset = slice.offset[dim], size = slice.shape[dim];
    if (offset < 0 || size < 0 || offset > tensor[dim] || size > tensor[dim] - offset) return false;
  }
  const int64_t elements = Product(slice.shape);
  return slice.begin >= 0 && slice.count >= 0 && slice.begin <= elements &&
         slice.count <= elements - slice.begin;
}

struct BoxOf {
  std::vector<int64_t> offset, shape;
  auto operator<=>(const BoxOf&) const = default;
};

bool Overlap(const BoxOf& a, const BoxOf& b) {
  for (size_t dim = 0; dim < a.offset.size(); ++dim) {
    if (a.shape[dim] == 0 || b.shape[dim] == 0) return false;
    const bool apart = a.offset[dim] + a.shape[dim] <= b.offset[dim] ||
                       b.offset[dim] + b.shape[dim] <= a.offset[dim];
    if (apart) return false;
  }
  return true;
}

/// True if the ranges of one box hold each of its `elements` elements once. Sorts the ranges.
bool FillTheBox(std::vector<const Slice*>& ranges, int64_t elements) {
  std::ranges::sort(ranges, {},
                    [](const Slice* range) { return std::pair(range->begin, range->count); });
  int64_t end = 0;
  for (const Slice* range : ranges) {
    if (range->begin != end) return false;
    end += range->count;
  }
  return end == elements;
}

/// How two boxes are walked in rows. The boxes are equal in the dims from `dim` on. A row runs
/// along dim - 1, the last dim in which they differ.
struct Rows {
  size_t dim;     ///< 0 if the boxes are equal
  int64_t inner;  ///< elements of one step along dim - 1
};

Rows RowsOf(const Slice& from, const Slice& to) {
  Rows rows = {from.shape.size(), 1};
  while (rows.dim > 0) {
    const size_t dim = rows.dim - 1;
    const bool same = from.offset[dim] == to.offset[dim] && from.shape[dim] == to.shape[dim];
    if (!same) break;
    rows.inner *= from.shape[dim];
    --rows.dim;
  }
  return rows;
}

/// The number of the row of `to` that coincides with row `row` of `from`; -1 if `to` does not have
/// it.
int64_t RowIn(const Slice& to, const Slice& from, size_t dims, int64_t row) {
  int64_t place = 0, stride = 1;
  for (size_t dim = dims; dim-- > 0;) {
    const int64_t index = from.offset[dim] + row % from.shape[dim] - to.offset[dim];
    row /= from.shape[dim];
    if (index < 0 || index >= to.shape[dim]) return -1;
    place += index * stride;
    stride *= to.shape[dim];
  }
  return place;
}

}  // namespace

Slice Slice::Whole(std::vector<int64_t> shape) {
  std::vector<int64_t> origin(shape.size(), 0);
  return Box(std::move(origin), std::move(shape));
}

Slice Slice::Box(std::vector<int64_t> offset, std::vector<int64_t> shape) {
  const int64_t elements = Product(shape);
  return {std::move(offset), std::move(shape), 0, elements};
}

bool Slice::is_box() const { return begin == 0 && count == Product(shape); }

bool Slice::is_whole(std::span<const int64_t> tensor) const {
  return is_box() && std::ranges::equal(shape, tensor);
}

std::string Slice::ToString() const {
  std::vector<std::string> ranges;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    ranges.push_back(Str(offset[dim], ":", offset[dim] + shape[dim]));
  }
  const std::string box = Str("[", Join(ranges, ", "), "]");
  return is_box() ? box : Str(box, ".flat[", begin, ":", begin + count, "]");
}

std::string TroubleWithSlices(std::span<const int64_t> tensor, const std::vector<Slice>& slices) {
  std::map<BoxOf, std::vector<const Slice*>> boxes;
  for (const Slice& slice : slices) {
    if (!LiesWithin(slice, tensor)) return "a slice lies outside of it";
    boxes[{slice.offset, slice.shape}].push_back(&slice);
  }
  if (boxes.size() > kMostBoxes) return "too many slices";
  int64_t elements = 0;
  for (auto box = boxes.begin(); box != boxes.end(); ++box) {
    const int64_t own = Product(box->first.shape);
    if (!FillTheBox(box->second, own)) return "slices overlap or leave a hole";
    elements += own;
    for (auto other = boxes.begin(); other != box; ++other) {
      if (Overlap(box->first, other->first)) return "slices overlap";
    }
  }
  return elements == Product(tensor) ? "" : "slices leave a hole";
}

void ForEachRun(const Slice& from, const Slice& to,
                const std::function<void(int64_t i, int64_t j, int64_t n)>& copy) {
  STRATA_CHECK(to.is_box() && from.shape.size() == to.shape.size());
  if (from.count == 0 || to.count == 0) return;
  const Rows rows = RowsOf(from, to);
  if (rows.dim == 0) return copy(0, from.begin, from.count);
  const size_t last = rows.dim - 1;
  const int64_t from_row = from.shape[last] * rows.inner, to_row = to.shape[last] * rows.inner;
  // The beginning of a row of `to`, counted in elements from the beginning of the row of `from`.
  const int64_t shift = (to.offset[last] - from.offset[last]) * rows.inner;
  const int64_t end = from.begin + from.count;
  for (int64_t row = from.begin / from_row; row * from_row < end; ++row) {
    const int64_t place = RowIn(to, from, last, row);
    if (place < 0) continue;
    const int64_t first = std::max({from.begin - row * from_row, int64_t{0}, shift});
    const int64_t behind = std::min({end - row * from_row, from_row, shift + to_row});
    if (first >= behind) continue;
    copy(row * from_row + first - from.begin, place * to_row + first - shift, behind - first);
  }
}

}  // namespace strata
