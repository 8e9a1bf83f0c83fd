// Tests the shapes of convolutions and pooling against their definition: the test counts the
// windows that fit the input one by one; the rules use formulas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "engine/base/text.h"
#include "engine/layers/testing_spec.h"

namespace strata {
namespace {

using Shape = std::vector<int64_t>;

/// The output's shape as text, or the error.
std::string Output(const LayerSpec& layer, const Shape& input) {
  try {
    return FormatShape(InferLayer(layer, {{input, DType::kFloat32}}, nullptr)[0].shape);
  } catch (const ShapeError& error) {
    return error.what();
  }
}

int64_t Pick(int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); }

// ---- convolutions ----

/// One spatial dim of a convolution.
struct Window {
  int64_t size = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;

  static Window Any() { return {Pick(1, 12), Pick(1, 5), Pick(1, 4), Pick(0, 3), Pick(1, 3)}; }
  int64_t reach() const { return dilation * (kernel - 1); }
  /// The windows that lie within the padded input.
  int64_t Count() const {
    int64_t count = 0;
    for (int64_t first = -padding; first + reach() < size + padding; first += stride) ++count;
    return count;
  }
};

std::string Batches(int64_t channels, const std::vector<int64_t>& counts) {
  Shape shape = {2, channels};
  for (int64_t count : counts) {
    if (count == 0) return "";
    shape.push_back(count);
  }
  return FormatShape(shape);
}

RC_GTEST_PROP(Conv1d, CountsItsWindows, ()) {
  const Window w = Window::Any();
  const LayerSpec conv =
      Layer("Conv1d", {1, 3, w.kernel},
            {{"stride", w.stride}, {"padding", w.padding}, {"dilation", w.dilation}});
  const std::string expected = Batches(3, {w.Count()});
  const std::string output = Output(conv, {2, 1, w.size});
  RC_ASSERT((expected.empty() ? output.starts_with("expects at least ") : output == expected));
}

RC_GTEST_PROP(Conv2d, CountsItsWindowsInBothDims, ()) {
  const Window y = Window::Any(), x = Window::Any();
  const LayerSpec conv = Layer("Conv2d", {2, 5, Ints({y.kernel, x.kernel})},
                               {{"stride", Ints({y.stride, x.stride})},
                                {"padding", Ints({y.padding, x.padding})},
                                {"dilation", Ints({y.dilation, x.dilation})}});
  const std::string expected = Batches(5, {y.Count(), x.Count()});
  const std::string output = Output(conv, {2, 2, y.size, x.size});
  RC_ASSERT((expected.empty() ? output.starts_with("expects at least ") : output == expected));
}

/// The least size that the error names is accepted, and a size less by 1 is not.
RC_GTEST_PROP(Conv1d, NamesTheLeastSize, ()) {
  Window w = Window::Any();
  w.kernel += 12;
  const LayerSpec conv =
      Layer("Conv1d", {1, 3, w.kernel}, {{"padding", w.padding}, {"dilation", w.dilation}});
  const int64_t least = w.reach() + 1 - 2 * w.padding;
  RC_PRE(least > 1);
  RC_ASSERT(Output(conv, {2, 1, least - 1}) ==
            Str("expects at least ", least, " in spatial dim 0, since the kernel reaches over ",
                w.reach() + 1, ", got ", FormatShape(Shape{2, 1, least - 1})));
  RC_ASSERT(Output(conv, {2, 1, least}) == "(2, 3, 1)");
}

RC_GTEST_PROP(Convolutions, SameKeepsTheSize, ()) {
  const Window w = Window::Any();
  const Value::Map named = {{"padding", "same"}, {"dilation", w.dilation}};
  RC_ASSERT(Output(Layer("Conv1d", {1, 3, w.kernel}, named), {2, 1, w.size}) ==
            FormatShape(Shape{2, 3, w.size}));
  RC_ASSERT(Output(Layer("Conv2d", {1, 3, w.kernel}, named), {2, 1, w.size, 4}) ==
            FormatShape(Shape{2, 3, w.size, 4}));
}

RC_GTEST_PROP(Convolutions, ValidIsNoPadding, ()) {
  const Window w = Window::Any();
  const Shape input = {2, 1, w.size, 9};
  const Value::List first = {1, 3, w.kernel};
  RC_ASSERT(Output(Layer("Conv2d", first, {{"padding", "valid"}, {"stride", w.stride}}), input) ==
            Output(Layer("Conv2d", first, {{"padding", 0}, {"stride", w.stride}}), input));
}

/// Groups, bias and batch do not change the output's size; the batch may be empty.
RC_GTEST_PROP(Convolutions, OnlyTheWindowMattersToTheSize, ()) {
  const Window w = Window::Any();
  const int64_t groups = Pick(1, 3), batch = Pick(0, 3);
  const auto output = [&](int64_t g, bool bias, int64_t n) {
    return Output(
        Layer("Conv1d", {6, 12, w.kernel}, {{"groups", g}, {"bias", bias}, {"padding", w.padding}}),
        {n, 6, w.size});
  };
  const int64_t count = Window{w.size, w.kernel, 1, w.padding, 1}.Count();
  RC_PRE(count > 0);
  RC_ASSERT(output(groups, true, batch) == FormatShape(Shape{batch, 12, count}));
  RC_ASSERT(output(1, false, batch) == FormatShape(Shape{batch, 12, count}));
}

/// The kernels of a group see only the channels of the group.
RC_GTEST_PROP(Convolutions, GroupsDivideTheWeights, ()) {
  const int64_t groups = Pick(1, 4), in = groups * Pick(1, 4), out = groups * Pick(1, 4);
  const Window w = Window::Any();
  const auto count = [&](const char* type, int64_t g) {
    return CountParameters(Layer(type, {in, out, w.kernel}, {{"groups", g}, {"bias", false}}));
  };
  for (const char* type : {"Conv1d", "Conv2d", "ConvTranspose2d"}) {
    RC_ASSERT(count(type, groups) * groups == count(type, 1));
  }
}

/// As PyTorch documents, ConvTranspose2d with output_padding restores the input size of a Conv2d
/// with the same arguments.
RC_GTEST_PROP(ConvTranspose2d, UndoesAConvolution, ()) {
  const Window w = Window::Any();
  RC_PRE(w.Count() > 0);
  const int64_t lost = (w.size + 2 * w.padding - w.reach() - 1) % w.stride;
  const LayerSpec conv =
      Layer("Conv2d", {1, 1, w.kernel},
            {{"stride", w.stride}, {"padding", w.padding}, {"dilation", w.dilation}});
  const LayerSpec transposed = Layer("ConvTranspose2d", {1, 1, w.kernel},
                                     {{"stride", w.stride},
                                      {"padding", w.padding},
                                      {"dilation", w.dilation},
                                      {"output_padding", lost}});
  const Shape input = {2, 1, w.size, w.size};
  RC_ASSERT(FormatShape(
                InferLayers({conv, transposed}, {{input, DType::kFloat32}}, nullptr)[1][0].shape) ==
            FormatShape(input));
}

struct Misfit {
  LayerSpec layer;
  Shape input;
  std::string reason;
};

TEST(Convolutions, SayWhatTheyExpect) {
  const std::string image = "expects (batch, 3, height, width), got ";
  const auto mode = [](const char* name, const Value& padding) {
    return Layer("Conv1d", {1, 1, 2}, {{"padding_mode", name}, {"padding", padding}});
  };
  const std::vector<Misfit> misfits = {
      {Layer("Conv2d", {3, 8, 3}), {2, 4, 9, 9}, image + "(2, 4, 9, 9)"},
      {Layer("Conv2d", {3, 8, 3}), {3, 9, 9}, image + "(3, 9, 9)"},
      {Layer("Conv2d", {3, 8, 3}), {}, image + "()"},
      {Layer("Conv2d", {3, 8, 3}), {2, 3, 9, 9, 1}, image + "(2, 3, 9, 9, 1)"},
      {Layer("Conv1d", {3, 8, 3}), {2, 4, 9}, "expects (batch, 3, length), got (2, 4, 9)"},
      {Layer("ConvTranspose2d", {3, 8, 3}), {2, 8, 9, 9}, image + "(2, 8, 9, 9)"},
      {Layer("Conv2d", {3, 8, Ints({3, 5})}),
       {2, 3, 9, 4},
       "expects at least 5 in spatial dim 1, since the kernel reaches over 5, got (2, 3, 9, 4)"},
      {Layer("Conv2d", {3, 8, 3}, {{"dilation", 4}}),
       {2, 3, 8, 9},
       "expects at least 9 in spatial dim 0, since the kernel reaches over 9, got (2, 3, 8, 9)"},
      {mode("reflect", 3),
       {2, 1, 3},
       "expects more than 3 in every spatial dim (padding_mode reflect), got (2, 1, 3)"},
      {mode("circular", 4),
       {2, 1, 3},
       "expects more than 3 in every spatial dim (padding_mode circular), got (2, 1, 3)"},
      {Layer("ConvTranspose2d", {1, 1, 1}, {{"padding", 2}}),
       {2, 1, 9, 4},
       "expects a larger spatial dim 1: nothing is left after padding 2, got (2, 1, 9, 4)"},
  };
  for (const Misfit& misfit : misfits) EXPECT_EQ(Output(misfit.layer, misfit.input), misfit.reason);
  EXPECT_EQ(Output(mode("reflect", 2), {2, 1, 3}), "(2, 1, 6)");
  EXPECT_EQ(Output(mode("circular", 3), {2, 1, 3}), "(2, 1, 8)");
  EXPECT_EQ(Output(mode("replicate", 9), {2, 1, 3}), "(2, 1, 20)") << "an edge repeats for ever";
  EXPECT_EQ(Output(Layer("ConvTranspose2d", {1, 1, 1}, {{"padding", 2}}), {2, 1, 5, 5}),
            "(2, 1, 1, 1)");
}

TEST(Convolutions, TakeFloat32Only) {
  for (const char* type : {"Conv2d", "ConvTranspose2d"}) {
    for (DType dtype : {DType::kFloat64, DType::kBFloat16, DType::kInt64, DType::kBool}) {
      const TensorSpec input = {{2, 3, 9, 9}, dtype};
      EXPECT_EQ(ErrorOf([&] {
                  InferLayer(Layer(type, {3, 8, 3}), {input}, nullptr);
                }),
                "expects float32, got " + input.ToString());
    }
  }
}

// ---- pooling ----

/// The number of windows along one dim of a pooling layer. With ceil_mode a window may reach beyond
/// the padded end by less than a stride, and must begin within the input or the padding before it.
int64_t PooledCount(const Window& w, bool ceil_mode) {
  int64_t count = 0;
  for (int64_t first = -w.padding; first < w.size + w.padding; first += w.stride) {
    const int64_t overhang = first + w.reach() + 1 - (w.size + w.padding);
    if (overhang <= 0 || (ceil_mode && overhang < w.stride && first < w.size)) ++count;
  }
  return count;
}

Window AnyPool() {
  Window w = Window::Any();
  w.padding = Pick(0, w.kernel / 2);
  return w;
}

RC_GTEST_PROP(MaxPool2d, CountsItsWindows, (bool ceil_mode)) {
  const Window y = AnyPool(), x = AnyPool();
  const LayerSpec pool = Layer("MaxPool2d", {Ints({y.kernel, x.kernel})},
                               {{"stride", Ints({y.stride, x.stride})},
                                {"padding", Ints({y.padding, x.padding})},
                                {"dilation", Ints({y.dilation, x.dilation})},
                                {"ceil_mode", ceil_mode}});
  const std::string expected = Batches(3, {PooledCount(y, ceil_mode), PooledCount(x, ceil_mode)});
  const std::string output = Output(pool, {2, 3, y.size, x.size});
  RC_ASSERT((expected.empty() ? output.starts_with("expects room for a window of ")
                              : output == expected));
}

RC_GTEST_PROP(AvgPool2d, CountsAsMaxPool2dDoes, (bool ceil_mode)) {
  const Window w = AnyPool();
  const Value::Map named = {{"stride", w.stride}, {"padding", w.padding}, {"ceil_mode", ceil_mode}};
  const Shape input = {2, w.size, 7};
  RC_ASSERT(Output(Layer("AvgPool2d", {w.kernel}, named), input) ==
            Output(Layer("MaxPool2d", {w.kernel}, named), input));
}

RC_GTEST_PROP(AdaptiveAvgPool2d, GivesWhatItIsAskedFor, ()) {
  const int64_t height = Pick(1, 9), width = Pick(1, 9);
  const Value kept;
  const auto output = [&](const Value& y, const Value& x) {
    return Output(Layer("AdaptiveAvgPool2d", {Value::List{y, x}}), {2, 3, 5, 6});
  };
  RC_ASSERT(output(height, width) == FormatShape(Shape{2, 3, height, width}));
  RC_ASSERT(output(kept, width) == FormatShape(Shape{2, 3, 5, width}));
  RC_ASSERT(output(height, kept) == FormatShape(Shape{2, 3, height, 6}));
  RC_ASSERT(output(kept, kept) == "(2, 3, 5, 6)");
}

TEST(Unfold, RefusesMoreWindowsThanAnyMachineHolds) {
  const int64_t most = kLargestSize;
  const auto error = [](Value::Map named, const Shape& input) {
    return Output(Layer("Unfold", {}, std::move(named)), input);
  };
  EXPECT_THAT(error({{"kernel_size", 1}, {"padding", most}}, {1, 1, 2, 2}),  // 2^64 windows
              testing::HasSubstr("more than any machine holds"));
  EXPECT_THAT(error({{"kernel_size", most}, {"padding", most}}, {1, 4, 2, 2}),
              testing::HasSubstr("more than any machine holds"));
  EXPECT_EQ(error({{"kernel_size", 2}}, {1, 3, 4, 5}), "(1, 12, 12)");
}

TEST(Pooling, TakesImagesWithAndWithoutChannels) {
  for (const LayerSpec& pool :
       {Layer("MaxPool2d", {2}), Layer("AvgPool2d", {2}), Layer("AdaptiveAvgPool2d", {2})}) {
    EXPECT_EQ(Output(pool, {0, 3, 4, 4}), "(0, 3, 2, 2)") << pool.type;
    EXPECT_EQ(Output(pool, {7, 4, 4}), "(7, 2, 2)") << pool.type;
    for (const Shape& shape : {Shape{}, Shape{4}, Shape{4, 4}, Shape{1, 2, 3, 4, 4}}) {
      EXPECT_EQ(Output(pool, shape),
                "expects (batch, channels, height, width) or (batch, height, width), got " +
                    FormatShape(shape));
    }
    EXPECT_EQ(ErrorOf([&] {
                InferLayer(pool, {{{2, 4, 4}, DType::kInt64}}, nullptr);
              }),
              "expects floating numbers, got int64 (2, 4, 4)");
  }
}

TEST(Pooling, SaysHowLargeTheWindowIs) {
  EXPECT_EQ(Output(Layer("MaxPool2d", {3}), {1, 2, 9}),
            "expects room for a window of (3, 3), got (1, 2, 9)");
  EXPECT_EQ(Output(Layer("MaxPool2d", {3, 1, 0, 2}), {1, 5, 4}),
            "expects room for a window of (5, 5), got (1, 5, 4)");
  EXPECT_EQ(Output(Layer("AvgPool2d", {Ints({1, 4})}), {1, 1, 3}),
            "expects room for a window of (1, 4), got (1, 1, 3)");
}

}  // namespace
}  // namespace strata
