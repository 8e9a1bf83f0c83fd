// Declarations of the pooling layers, over the last dims of (batch, channels, ...) or (batch, ...).
#include <algorithm>
#include <functional>
#include <utility>

#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

/// Sets a missing stride to kernel_size. Throws ConfigError for padding that is too large for the
/// window, which PyTorch refuses only when the layer runs.
void Finish(LayerSpec& spec) {
  if (spec.args["stride"].is_null()) spec.args.Set("stride", spec.args["kernel_size"]);
  const Shape padding = spec.Ints("padding"), kernel = spec.Ints("kernel_size");
  for (size_t d = 0; d < padding.size(); ++d) {
    if (padding[d] <= kernel[d] / 2) continue;
    throw ConfigError(Str("padding ", padding[d], " is more than half of kernel_size ", kernel[d]));
  }
}

/// The size of the window in each dim, with dilation.
Shape Window(const LayerSpec& spec) {
  Shape window = spec.Ints("kernel_size");
  if (!spec.args.Has("dilation")) return window;
  const Shape dilation = spec.Ints("dilation");
  for (size_t d = 0; d < window.size(); ++d) window[d] = dilation[d] * (window[d] - 1) + 1;
  return window;
}

/// The output size along one dim. With ceil_mode the last window may reach beyond the padded end,
/// but must begin inside the input or the padding before it.
int64_t PooledSize(int64_t size, int64_t window, int64_t stride, int64_t padding, bool ceil_mode) {
  const int64_t room = size + 2 * padding - window + (ceil_mode ? stride - 1 : 0);
  if (room < 0) return 0;
  const int64_t pooled = room / stride + 1;
  return ceil_mode && (pooled - 1) * stride >= size + padding ? pooled - 1 : pooled;
}

/// The output of a pool over the last `dims` dims. `size` maps the input's size of such a dim, and
/// the number of the dim among them, to the output's size.
TensorSpec Pooled(const TensorSpec& input, size_t dims,
                  const std::function<int64_t(int64_t, size_t)>& size) {
  if (input.shape.size() != dims + 1 && input.shape.size() != dims + 2) {
    const char* words = Spatial(dims).words;
    RefuseShape(Str("(batch, channels, ", words, ") or (batch, ", words, ")"), input);
  }
  ExpectFloating(input);
  TensorSpec output = input;
  const size_t first = input.shape.size() - dims;
  for (size_t d = 0; d < dims; ++d) output.shape[first + d] = size(input.shape[first + d], d);
  return output;
}

TensorSpec Infer(const LayerSpec& spec, const TensorSpec& input) {
  const Shape window = Window(spec);
  const Shape stride = spec.Ints("stride"), padding = spec.Ints("padding");
  return Pooled(input, window.size(),
                [&, ceil_mode = spec.Bool("ceil_mode")](int64_t size, size_t d) {
                  int64_t pooled = PooledSize(size, window[d], stride[d], padding[d], ceil_mode);
                  if (spec.type == "AvgPool3d" && size < window[d])
                    pooled = 0;  // ATen refuses a window larger than the input only here
                  if (pooled < 1)
                    RefuseShape(Str("room for a window of ", FormatShape(window)), input);
                  return pooled;
                });
}

TensorSpec InferAdaptive(const LayerSpec& spec, const TensorSpec& input) {
  const Value::List& sizes = spec.args["output_size"].as_list();
  return Pooled(input, sizes.size(), [&](int64_t size, size_t d) {
    return sizes[d].is_null() ? size : sizes[d].as_int();
  });
}

/// The cost of a max pool. Its backward also keeps the indices of the maxima.
std::vector<Traced> MaxPoolCost(LayerTape& tape, const LayerSpec& spec,
                                const std::vector<Traced>& inputs, const TensorSpecs& outputs) {
  tape.Keep(tape.Fresh(TensorSpec{outputs[0].shape, DType::kInt64}));
  return CallCost()(tape, spec, inputs, outputs);
}

std::vector<Traced> AdaptiveAvgPoolCost(LayerTape& tape, const LayerSpec& spec,
                                        const std::vector<Traced>& inputs,
                                        const TensorSpecs& outputs) {
  const size_t dims = spec.args["output_size"].as_list().size();
  return {ApplyAdaptiveMean(tape, inputs[0], outputs[0], dims)};
}

/// True if windows may overlap, so that their gradients are added to the same element.
bool SharesElements(const LayerSpec& spec) {
  if (!spec.args.Has("output_size")) return spec.args["stride"] != spec.args["kernel_size"];
  // A single window over everything does not overlap.
  return std::ranges::any_of(spec.args["output_size"].as_list(),
                             [](const Value& size) { return size != Value(1); });
}

LayerType Pool(const std::string& name, size_t dims, FieldTable fields, std::string help,
               UnaryRule infer, CostRule cost) {
  return {.name = Str(name, dims, "d"),
          .fields = std::move(fields),
          .help = std::move(help),
          .shapes = Str("(..., ", Spatial(dims).letters, ") -> (..., ", Spatial(dims).primed, ")"),
          .infer = Unary(std::move(infer)),
          .cost = std::move(cost)};
}

/// `more`: the arguments that follow PyTorch's padding.
LayerType WindowPool(const std::string& name, int dims, FieldTable more, std::string help,
                     CostRule cost) {
  FieldTable fields = {
      Field::Size("kernel_size", dims, "size of the window").AtLeast(1),
      Field::Size("stride", dims, "step of the window; none = kernel_size").AtLeast(1).Optional(),
      Field::Size("padding", dims, "added on both sides of each dim").AtLeast(0).Default(0)};
  fields.insert(fields.end(), more.begin(), more.end());
  LayerType type = Pool(name, static_cast<size_t>(dims), std::move(fields), std::move(help), Infer,
                        std::move(cost));
  type.finish = Finish;
  return type;
}

Field CeilMode() {
  return Field::Bool("ceil_mode", "a last window may hang over the edge").Default(false);
}

Field ReturnIndices() {
  return Field::Bool("return_indices", "gives the places of the maxima too")
      .Default(false)
      .OnlyDefaultYet("a layer with two outputs");
}

LayerType MaxPool(int dims) {
  return WindowPool(
      "MaxPool", dims,
      {Field::Size("dilation", dims, "distance of the window's elements").AtLeast(1).Default(1),
       ReturnIndices(), CeilMode()},
      "the largest element of each window", MaxPoolCost);
}

LayerType AvgPool(int dims) {
  FieldTable more = {CeilMode(),
                     Field::Bool("count_include_pad", "padding counts as zeros").Default(true)};
  if (dims > 1) {
    more.push_back(Field::Int("divisor_override", "divides by this; none = the window's size")
                       .AtLeast(1)
                       .Optional());
  }
  return WindowPool("AvgPool", dims, std::move(more), "the mean of each window", CallCost());
}

/// `more`: the arguments that follow output_size.
LayerType AdaptivePool(const std::string& name, int dims, const char* what, FieldTable more,
                       CostRule cost) {
  const auto count = static_cast<size_t>(dims);
  more.insert(more.begin(),
              Field::Size("output_size", dims, "size of the output; none in a dim keeps it")
                  .AtLeast(1)
                  .ElementsOrNone());
  LayerType type =
      Pool(name, count, std::move(more),
           Str(what, " of as many windows as the output has elements"), InferAdaptive, cost);
  type.shapes = Str("(..., ", Spatial(count).letters, ") -> (..., output_size)");
  return type;
}

}  // namespace

std::vector<LayerType> PoolingTypes() {
  std::vector<LayerType> types;
  for (int dims = 1; dims <= 3; ++dims) {
    types.push_back(MaxPool(dims));
    types.push_back(AvgPool(dims));
    types.push_back(AdaptivePool("AdaptiveAvgPool", dims, "means", {}, AdaptiveAvgPoolCost));
    types.push_back(
        AdaptivePool("AdaptiveMaxPool", dims, "maxima", {ReturnIndices()}, MaxPoolCost));
  }
  for (LayerType& type : types) {
    const bool has_atomics = type.name.ends_with("3d") || type.name == "AdaptiveMaxPool2d";
    if (has_atomics) type.unordered_on_gpu = SharesElements;
  }
  return types;
}

}  // namespace strata::layers
