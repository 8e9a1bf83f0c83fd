// Declarations of MaxPool2d, AvgPool2d and AdaptiveAvgPool2d, which pool over the last two of three
// or four dims.
#include "engine/spec/layers/rules.h"

namespace strata::layers {
namespace {

void CompleteStride(LayerSpec& spec) {
  if (spec.args["stride"].is_null()) spec.args.Set("stride", spec.args["kernel_size"]);
}

/// Refuses padding that is too large for the window. PyTorch refuses it only when the layer runs.
void CheckPadding(const LayerSpec& spec) {
  const Shape padding = spec.args["padding"].as_ints();
  const Shape kernel = spec.args["kernel_size"].as_ints();
  for (size_t d = 0; d < padding.size(); ++d) {
    if (padding[d] <= kernel[d] / 2) continue;
    throw ConfigError(Str("padding ", padding[d], " is more than half of kernel_size ", kernel[d]));
  }
}

/// The size of the window in each dim, with dilation.
Shape Window(const LayerSpec& spec) {
  Shape window = spec.args["kernel_size"].as_ints();
  if (!spec.args.Has("dilation")) return window;
  const Shape dilation = spec.args["dilation"].as_ints();
  for (size_t d = 0; d < window.size(); ++d) window[d] = dilation[d] * (window[d] - 1) + 1;
  return window;
}

void Finish(LayerSpec& spec) {
  CompleteStride(spec);
  CheckPadding(spec);
}

/// The output size along one dim. With ceil_mode the last window may reach beyond the padded end,
/// but must begin inside the input or the padding before it.
int64_t PooledSize(int64_t size, int64_t window, int64_t stride, int64_t padding, bool ceil_mode) {
  const int64_t room = size + 2 * padding - window + (ceil_mode ? stride - 1 : 0);
  if (room < 0) return 0;
  const int64_t pooled = room / stride + 1;
  return ceil_mode && (pooled - 1) * stride >= size + padding ? pooled - 1 : pooled;
}

void ExpectImage(const TensorSpec& input) {
  if (input.shape.size() != 3 && input.shape.size() != 4) {
    RefuseShape("(batch, channels, height, width) or (batch, height, width)", input);
  }
}

TensorSpec Infer(const LayerSpec& spec, const TensorSpec& input) {
  ExpectImage(input);
  ExpectFloating(input);
  const Shape window = Window(spec);
  const Shape stride = spec.args["stride"].as_ints();
  const Shape padding = spec.args["padding"].as_ints();
  const bool ceil_mode = spec.args["ceil_mode"].as_bool();
  const size_t first = input.shape.size() - 2;
  TensorSpec output = input;
  for (size_t d = 0; d < 2; ++d) {
    int64_t& size = output.shape[first + d];
    size = PooledSize(size, window[d], stride[d], padding[d], ceil_mode);
    if (size < 1) RefuseShape(Str("room for a window of ", FormatShape(window)), input);
  }
  return output;
}

TensorSpec InferAdaptive(const LayerSpec& spec, const TensorSpec& input) {
  ExpectImage(input);
  ExpectFloating(input);
  const Value::List& size = spec.args["output_size"].as_list();
  const size_t first = input.shape.size() - 2;
  TensorSpec output = input;
  for (size_t d = 0; d < 2; ++d) {
    if (!size[d].is_null()) output.shape[first + d] = size[d].as_int();
  }
  return output;
}

Field Kernel() { return Field::Size("kernel_size", 2, "size of the window").AtLeast(1); }

Field Stride() {
  return Field::Size("stride", 2, "step of the window; none = kernel_size").AtLeast(1).Optional();
}

Field Padding() {
  return Field::Size("padding", 2, "added on both sides of each dim").AtLeast(0).Default(0);
}

Field CeilMode() {
  return Field::Bool("ceil_mode", "a last window may hang over the edge").Default(false);
}

LayerType MaxPool2d() {
  return {
      .name = "MaxPool2d",
      .fields =
          {Kernel(), Stride(), Padding(),
           Field::Size("dilation", 2, "distance of the window's elements").AtLeast(1).Default(1),
           Field::Bool("return_indices", "gives the places of the maxima too")
               .Default(false)
               .OnlyDefaultYet("a layer with two outputs"),
           CeilMode()},
      .help = "the largest element of each window",
      .shapes = "(..., H, W) -> (..., H', W')",
      .finish = Finish,
      .infer = Unary(Infer),
  };
}

LayerType AvgPool2d() {
  return {
      .name = "AvgPool2d",
      .fields = {Kernel(), Stride(), Padding(), CeilMode(),
                 Field::Bool("count_include_pad", "padding counts as zeros").Default(true),
                 Field::Int("divisor_override", "divides by this; none = the window's size")
                     .AtLeast(1)
                     .Optional()},
      .help = "the mean of each window",
      .shapes = "(..., H, W) -> (..., H', W')",
      .finish = Finish,
      .infer = Unary(Infer),
  };
}

LayerType AdaptiveAvgPool2d() {
  Field size =
      Field::Size("output_size", 2, "size of the output; none in a dim keeps it").AtLeast(1);
  size.elements_take_none = true;
  return {
      .name = "AdaptiveAvgPool2d",
      .fields = {size},
      .help = "means of as many windows as the output has elements",
      .shapes = "(..., H, W) -> (..., output_size)",
      .infer = Unary(InferAdaptive),
  };
}

}  // namespace

std::vector<LayerType> PoolingTypes() { return {MaxPool2d(), AvgPool2d(), AdaptiveAvgPool2d()}; }

}  // namespace strata::layers
