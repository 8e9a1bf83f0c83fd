#include "engine/checkpoint/slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "engine/base/fields/tensor_spec.h"
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

/// A tensor, and boxes that together are the tensor: each dim is cut at some places.
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

// ---- Against brute force

TestTensor Numbered(const std::vector<int64_t>& shape) {
  return {"t", TensorKind::kParameter, shape, 0};
}

/// True if the slices hold each element once.
bool HoldEachOnce(const std::vector<int64_t>& shape, const std::vector<Slice>& slices) {
  std::vector<int> times(static_cast<size_t>(Product(shape)), 0);
  for (const Slice& slice : slices) {
    for (const float place : Numbered(shape).Of(slice)) ++times[static_cast<size_t>(place)];
  }
  return std::ranges::all_of(times, [](int count) { return count == 1; });
}

TEST(SliceTest, BoxesAndWholes) {
  const struct {
    Slice slice;
    bool is_box, is_whole;  // for a tensor (4, 6)
    const char* text;
  } kCases[] = {
      {Slice::Whole({4, 6}), true, true, "[0:4, 0:6]"},
      {Slice::Whole({6, 4}), true, false, "[0:6, 0:4]"},
      {Slice::Whole({24}), true, false, "[0:24]"},
      {Slice::Whole({4, 6, 1}), true, false, "[0:4, 0:6, 0:1]"},
      {Slice::Box({0, 3}, {4, 3}), true, false, "[0:4, 3:6]"},
      {Slice::Box({2, 2}, {0, 3}), true, false, "[2:2, 2:5]"},
      {Range(Slice::Whole({4, 6}), 0, 24), true, true, "[0:4, 0:6]"},
      {Range(Slice::Whole({4, 6}), 0, 23), false, false, "[0:4, 0:6].flat[0:23]"},
      {Range(Slice::Whole({4, 6}), 1, 23), false, false, "[0:4, 0:6].flat[1:24]"},
      {Range(Slice::Whole({4, 6}), 24, 0), false, false, "[0:4, 0:6].flat[24:24]"},
  };
  const std::vector<int64_t> tensor = {4, 6};
  for (const auto& [slice, is_box, is_whole, text] : kCases) {
    EXPECT_EQ(slice.is_box(), is_box) << text;
    EXPECT_EQ(slice.is_whole(tensor), is_whole) << text;
    EXPECT_EQ(slice.ToString(), text);
  }
}

TEST(TroubleWithSlicesTest, EveryPairOfBoxes) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{5}, {3, 4}, {2, 2, 2}, {2, 1, 2, 1}, {0}, {2, 0}}) {
    for (const Slice& a : AllBoxes(shape)) {
      for (const Slice& b : AllBoxes(shape)) {
        const std::string trouble = TroubleWithSlices(shape, {a, b});
        ASSERT_EQ(trouble.empty(), HoldEachOnce(shape, {a, b}))
            << a.ToString() << " and " << b.ToString() << ": " << trouble;
      }
    }
  }
}

TEST(TroubleWithSlicesTest, EmptySlicesAreInNobodysWay) {
  const std::vector<int64_t> shape = {4, 6};
  const Slice whole = Slice::Whole(shape);
  for (const Slice& box : AllBoxes(shape)) {
    if (box.count > 0) continue;
    EXPECT_EQ(TroubleWithSlices(shape, {whole, box}), "") << box.ToString();
    EXPECT_EQ(TroubleWithSlices(shape, {box, whole, box}), "") << box.ToString();
  }
  for (int64_t begin = 0; begin <= 24; ++begin) {
    EXPECT_EQ(TroubleWithSlices(shape, {Range(whole, 0, begin), Range(whole, begin, 24 - begin),
                                        Range(whole, begin, 0)}),
              "")
        << begin;
  }
}

TEST(TroubleWithSlicesTest, ManyBoxes) {
  for (const int64_t size : {1000, 2000}) {
    std::vector<Slice> slices;
    for (int64_t i = 0; i < size; ++i) slices.push_back(Slice::Box({i}, {1}));
    EXPECT_EQ(TroubleWithSlices(std::vector<int64_t>{size}, slices),
              size == 1000 ? "" : "too many slices");
  }
}

TEST(ForEachRunTest, EveryPairOfBoxes) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {5}, {3, 3}, {2, 3, 1}, {2, 1, 2, 1}}) {
    const TestTensor tensor = Numbered(shape);
    for (const Slice& from : AllBoxes(shape)) {
      const std::vector<float> held = tensor.Of(from);
      for (const Slice& to : AllBoxes(shape)) {
        std::vector<float> out(static_cast<size_t>(to.count), -1);
        ForEachRun(from, to, [&](int64_t i, int64_t j, int64_t n) {
          ASSERT_TRUE(n > 0 && i >= 0 && i + n <= from.count && j >= 0 && j + n <= to.count);
          std::copy_n(held.begin() + i, n, out.begin() + j);
        });
        std::vector<float> expected = tensor.Of(to);
        for (float& place : expected) {
          if (std::ranges::find(held, place) == held.end()) place = -1;
        }
        ASSERT_EQ(out, expected) << from.ToString() << " to " << to.ToString();
      }
    }
  }
}

TEST(ForEachRunTest, RunsAreLong) {
  const struct {
    Slice from, to;
    int runs;
  } kCases[] = {
      {Slice::Whole({}), Slice::Whole({}), 1},
      {Slice::Whole({8, 4, 6}), Slice::Whole({8, 4, 6}), 1},
      {Slice::Whole({8, 4, 6}), Slice::Box({2, 0, 0}, {3, 4, 6}), 1},
      {Slice::Whole({8, 4, 6}), Slice::Box({2, 1, 0}, {3, 2, 6}), 3},
      {Slice::Whole({8, 4, 6}), Slice::Box({2, 1, 1}, {3, 2, 2}), 6},
      {Slice::Box({0, 2, 0}, {8, 2, 6}), Slice::Box({0, 0, 0}, {8, 3, 6}), 8},
      {Slice::Box({0, 0, 0}, {4, 4, 6}), Slice::Box({4, 0, 0}, {4, 4, 6}), 0},
      {Range(Slice::Whole({8, 4, 6}), 7, 90), Slice::Whole({8, 4, 6}), 1},
      {Range(Slice::Whole({8, 4, 6}), 7, 0), Slice::Whole({8, 4, 6}), 0},
  };
  for (const auto& [from, to, expected] : kCases) {
    int runs = 0;
    ForEachRun(from, to, [&](int64_t, int64_t, int64_t) { ++runs; });
    EXPECT_EQ(runs, expected) << from.ToString() << " to " << to.ToString();
  }
}

RC_GTEST_PROP(SliceProperty, NoTroubleMeansEachElementOnce, ()) {
  Cut cut = AnyCut();
  const auto place = *rc::gen::inRange<size_t>(0, cut.slices.size());
  switch (*rc::gen::inRange(0, 4)) {
    case 0:
      cut.slices[place] = AnyBox(cut.tensor.shape);
      break;
    case 1:
      cut.slices.push_back(AnyBox(cut.tensor.shape));
      break;
    case 2:
      cut.slices[place].begin = *rc::gen::inRange<int64_t>(0, 3);
      break;
    default:
      cut.slices[place].count = *rc::gen::inRange<int64_t>(0, 5);
  }
  if (TroubleWithSlices(cut.tensor.shape, cut.slices).empty()) {
    RC_ASSERT(HoldEachOnce(cut.tensor.shape, cut.slices));
  }
}

}  // namespace
}  // namespace strata
