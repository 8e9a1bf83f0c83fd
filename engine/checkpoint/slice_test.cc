#include "engine/checkpoint/slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/checkpoint/testing.h"

namespace strata {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

Slice Range(Slice box, int64_t begin, int64_t count) {
  box.begin = begin;
  box.count = count;
  return box;
}

TEST(SliceTest, ShowsItselfAsNumpyWould) {
  EXPECT_EQ(Slice::Whole({4, 6}).ToString(), "[0:4, 0:6]");
  EXPECT_EQ(Range(Slice::Box({0, 3}, {4, 3}), 2, 5).ToString(), "[0:4, 3:6].flat[2:7]");
  EXPECT_EQ(Slice::Whole({}).ToString(), "[]");
}

TEST(TroubleWithSlicesTest, WhatIsWholeHasNone) {
  const std::vector<int64_t> shape = {4, 6};
  EXPECT_THAT(TroubleWithSlices(shape, {Slice::Whole(shape)}), IsEmpty());
  const Slice right = Slice::Box({0, 3}, {4, 3});
  EXPECT_THAT(TroubleWithSlices(
                  shape, {Range(right, 5, 7), Slice::Box({0, 0}, {4, 3}), Range(right, 0, 5)}),
              IsEmpty());
  EXPECT_THAT(TroubleWithSlices(std::vector<int64_t>{}, {Slice::Whole({})}), IsEmpty());
  EXPECT_THAT(TroubleWithSlices(std::vector<int64_t>{0, 3}, {Slice::Whole({0, 3})}), IsEmpty());
}

TEST(TroubleWithSlicesTest, HolesOverlapsAndNonsense) {
  const std::vector<int64_t> shape = {4, 6};
  const Slice left = Slice::Box({0, 0}, {4, 3}), right = Slice::Box({0, 3}, {4, 3});
  EXPECT_THAT(TroubleWithSlices(shape, {}), HasSubstr("hole"));
  EXPECT_THAT(TroubleWithSlices(shape, {left}), HasSubstr("hole"));
  EXPECT_THAT(TroubleWithSlices(shape, {left, Slice::Box({0, 2}, {4, 4})}), HasSubstr("overlap"));
  EXPECT_THAT(TroubleWithSlices(shape, {left, right, right}), HasSubstr("overlap"));
  EXPECT_THAT(TroubleWithSlices(shape, {left, Range(right, 0, 11)}), HasSubstr("hole"));
  EXPECT_THAT(TroubleWithSlices(shape, {left, Slice::Box({0, 4}, {4, 3})}), HasSubstr("outside"));
  EXPECT_THAT(TroubleWithSlices(shape, {Slice::Whole({24})}), HasSubstr("outside"));
  EXPECT_THAT(TroubleWithSlices(shape, {left, Range(right, INT64_MAX, INT64_MAX)}),
              HasSubstr("outside"));
  EXPECT_THAT(TroubleWithSlices(shape, {Slice::Box({0, INT64_MAX}, {4, INT64_MAX})}),
              HasSubstr("outside"));
}

/// A tensor, and boxes that make it up: each dim is cut somewhere.
struct Cut {
  TestTensor tensor;
  std::vector<Slice> slices;
};

void CutBoxes(const std::vector<std::vector<int64_t>>& bounds, Slice box,
              std::vector<Slice>& slices) {
  const size_t dim = box.offset.size();
  if (dim == bounds.size()) {
    slices.push_back(Slice::Box(box.offset, box.shape));
    return;
  }
  for (size_t i = 0; i + 1 < bounds[dim].size(); ++i) {
    Slice next = box;
    next.offset.push_back(bounds[dim][i]);
    next.shape.push_back(bounds[dim][i + 1] - bounds[dim][i]);
    CutBoxes(bounds, next, slices);
  }
}

std::vector<Slice> CutRanges(const std::vector<Slice>& boxes) {
  std::vector<Slice> slices;
  for (const Slice& box : boxes) {
    const int64_t cut = *rc::gen::inRange<int64_t>(0, box.count + 1);
    slices.push_back(Range(box, 0, cut));
    slices.push_back(Range(box, cut, box.count - cut));
  }
  return slices;
}

Cut AnyCut() {
  Cut cut;
  cut.tensor = {"t", TensorKind::kParameter, {}, 0};
  cut.tensor.shape = *rc::gen::container<std::vector<int64_t>>(*rc::gen::inRange<size_t>(0, 5),
                                                               rc::gen::inRange<int64_t>(1, 5));
  std::vector<std::vector<int64_t>> bounds;
  for (const int64_t size : cut.tensor.shape) {
    bounds.push_back({0, *rc::gen::inRange<int64_t>(0, size + 1), size});
  }
  CutBoxes(bounds, {}, cut.slices);
  if (*rc::gen::arbitrary<bool>()) cut.slices = CutRanges(cut.slices);
  return cut;
}

Slice AnyBox(const std::vector<int64_t>& shape) {
  Slice box;
  for (const int64_t size : shape) {
    box.offset.push_back(*rc::gen::inRange<int64_t>(0, size));
    box.shape.push_back(*rc::gen::inRange<int64_t>(0, size - box.offset.back() + 1));
  }
  return Slice::Box(box.offset, box.shape);
}

RC_GTEST_PROP(SliceProperty, CutsAreWholeAndNothingLessIs, ()) {
  Cut cut = AnyCut();
  RC_ASSERT(TroubleWithSlices(cut.tensor.shape, cut.slices) == "");
  const size_t place = *rc::gen::inRange<size_t>(0, cut.slices.size());
  const Slice one = cut.slices[place];
  if (one.count == 0) return;
  cut.slices.push_back(one);
  RC_ASSERT(TroubleWithSlices(cut.tensor.shape, cut.slices) != "");
  cut.slices.pop_back();
  cut.slices.erase(cut.slices.begin() + static_cast<int64_t>(place));
  RC_ASSERT(TroubleWithSlices(cut.tensor.shape, cut.slices) != "");
}

RC_GTEST_PROP(SliceProperty, AnyBoxComesOutOfAnyCut, ()) {
  const Cut cut = AnyCut();
  const Slice box = AnyBox(cut.tensor.shape);
  std::vector<float> out(static_cast<size_t>(box.count), -1);
  int64_t copied = 0;
  for (const Slice& slice : cut.slices) {
    const std::vector<float> held = cut.tensor.Of(slice);
    ForEachRun(slice, box, [&](int64_t i, int64_t j, int64_t n) {
      RC_ASSERT(n > 0 && i >= 0 && i + n <= slice.count && j >= 0 && j + n <= box.count);
      std::copy_n(held.begin() + i, n, out.begin() + j);
      copied += n;
    });
  }
  RC_ASSERT(copied == box.count);
  RC_ASSERT(out == cut.tensor.Of(box));
}

}  // namespace
}  // namespace strata
