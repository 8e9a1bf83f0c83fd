// Declarations of the layers that pad, resample, or rearrange the last dims of images: the padding
// layers, Upsample, PixelShuffle and its reverse, Unfold and Fold.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

/// The type of a layer that is one call of ATen. Its backward needs only shapes, unless `keeps`
/// says otherwise.
LayerType OneCall(std::string name, FieldTable fields, std::string help, std::string shapes,
                  UnaryRule infer, Keeps keeps = Keeps::kNothing) {
  return {.name = std::move(name),
          .fields = std::move(fields),
          .help = std::move(help),
          .shapes = std::move(shapes),
          .keeps = keeps,
          .infer = Unary(std::move(infer)),
          .cost = CallCost()};
}

// ---- Padding

struct PaddingKind {
  const char* name;
  const char* help;
  bool takes_all = false;  ///< any dtype, more dims, and negative padding, which cuts off
  /// The largest padding for a dim of this size: reflected and circular padding run out of values.
  /// Null = no limit.
  int64_t (*most)(int64_t size) = nullptr;
};

constexpr PaddingKind kPaddings[] = {
    {"ZeroPad", "zeros around the last dims", true},
    {"ConstantPad", "a number around the last dims", true},
    {"ReflectionPad", "mirrored elements around the last dims", false,
     [](int64_t size) { return size - 1; }},
    {"ReplicationPad", "the outermost elements again around the last dims"},
    {"CircularPad", "elements from the other side around the last dims", false,
     [](int64_t size) { return size; }},
};

/// The output's shape. The argument `padding` has two numbers for each dim (before, behind),
/// beginning with the last dim.
TensorSpec InferPadding(const PaddingKind& kind, const LayerSpec& spec, const TensorSpec& input) {
  const Shape padding = spec.Ints("padding");
  const size_t dims = padding.size() / 2, all = input.shape.size();
  const bool fits = all > dims && (kind.takes_all || all <= dims + 2);
  if (!fits) {
    const char* words = Spatial(dims).words;
    RefuseShape(Str("(batch, channels, ", words, ") or (batch, ", words, ")"), input);
  }
  if (!kind.takes_all) ExpectFloating(input);
  TensorSpec output = input;
  for (size_t d = 0; d < dims; ++d) {
    int64_t& size = output.shape[all - 1 - d];
    const int64_t before = padding[2 * d], behind = padding[2 * d + 1];
    if (kind.most && std::max(before, behind) > kind.most(size)) {
      RefuseShape(Str("room for a padding of ", std::max(before, behind), " in dim ", all - 1 - d),
                  input);
    }
    const int64_t left = size + std::min<int64_t>(before, 0) + std::min<int64_t>(behind, 0);
    size += before + behind;
    if (left < 0 || size < 1) RefuseShape(Str("something to be left of dim ", all - 1 - d), input);
  }
  return output;
}

LayerType Padding(const PaddingKind& kind, int dims) {
  Field padding =
      Field::Size("padding", 2 * dims, "sizes before and behind each dim, from the last one on");
  if (!kind.takes_all) padding.AtLeast(0);
  FieldTable fields = {padding};
  if (kind.name == std::string_view("ConstantPad")) {
    fields.push_back(Field::Number("value", "what the padding holds"));
  }
  const auto& names = Spatial(static_cast<size_t>(dims));
  // The other kinds of padding have no kernel of their own; ATen composes them of copies.
  const bool has_kernel = !kind.takes_all && kind.name != std::string_view("CircularPad");
  LayerType type = OneCall(
      Str(kind.name, dims, "d"), std::move(fields), kind.help,
      Str("(..., ", names.letters, ") -> (..., ", names.primed, ")"),
      [&kind](const LayerSpec& spec, const TensorSpec& x) { return InferPadding(kind, spec, x); },
      has_kernel ? Keeps::kInput : Keeps::kNothing);
  if (has_kernel && dims > 1) type.unordered_on_gpu = Always;
  return type;
}

// ---- Upsample

/// The number of spatial dims that a mode of Upsample takes; 0 = any from 1 to 3.
size_t DimsOfMode(const std::string& mode) {
  if (mode == "linear") return 1;
  if (mode == "trilinear") return 3;
  return mode == "bilinear" || mode == "bicubic" ? 2 : 0;
}

/// Makes scale_factor a list of numbers, from one number or a list of them. Throws ConfigError for
/// anything else.
void FinishScale(LayerSpec& spec) {
  const Value given = spec.args["scale_factor"];
  if (given.is_null()) return;
  const Value::List list = given.is_list() ? given.as_list() : Value::List{given};
  Value::List numbers;
  for (const Value& number : list) {
    const bool fits = number.is_number() && number.as_double() > 0 &&
                      number.as_double() <= static_cast<double>(kLargestSize);
    if (!fits) {
      throw ConfigError(Str("scale_factor expects numbers above 0, one or one for each dim; got ",
                            given.Describe()));
    }
    numbers.emplace_back(number.as_double());
  }
  spec.args.Set("scale_factor", Value(std::move(numbers)));
}

void FinishUpsample(LayerSpec& spec) {
  FinishScale(spec);
  const bool has_size = !spec.args["size"].is_null();
  if (has_size == !spec.args["scale_factor"].is_null()) {
    throw ConfigError("takes either size or scale_factor");
  }
  const std::string& mode = spec.args["mode"].as_string();
  if (!spec.args["align_corners"].is_null() && DimsOfMode(mode) == 0) {
    throw ConfigError(
        Str("align_corners goes with the modes linear, bilinear, bicubic and "
            "trilinear, not with ",
            mode));
  }
  if (has_size && !spec.args["recompute_scale_factor"].is_null() &&
      spec.Bool("recompute_scale_factor")) {
    throw ConfigError("recompute_scale_factor goes with scale_factor, not with size");
  }
}

TensorSpec InferUpsample(const LayerSpec& spec, const TensorSpec& input) {
  const std::string& mode = spec.args["mode"].as_string();
  const size_t dims = input.shape.size() < 2 ? 0 : input.shape.size() - 2,
               wanted = DimsOfMode(mode);
  if (dims < 1 || dims > 3 || (wanted != 0 && dims != wanted)) {
    RefuseShape(wanted == 0 ? std::string("(batch, channels, and 1 to 3 dims)")
                            : Str("(batch, channels, ", Spatial(wanted).words, ") for ", mode),
                input);
  }
  ExpectFloating(input);
  const char* name = spec.args["size"].is_null() ? "scale_factor" : "size";
  const Value::List& given = spec.args[name].as_list();
  if (given.size() != 1 && given.size() != dims) {
    RefuseShape(Str(given.size(), " spatial dims, as many as ", name, " has"), input);
  }
  TensorSpec output = input;
  for (size_t d = 0; d < dims; ++d) {
    const Value& of = given.size() == 1 ? given[0] : given[d];
    int64_t& size = output.shape[d + 2];
    if (name == std::string_view("size")) {
      size = of.as_int();
    } else {
      const double scaled = std::floor(static_cast<double>(size) * of.as_double());
      size = static_cast<int64_t>(std::min(scaled, 2.0 * static_cast<double>(kLargestSize)));
    }
    if (size < 1) RefuseShape(Str("something to be left of dim ", d + 2), input);
  }
  return output;
}

/// The cost of Upsample. The mode "area" is a mean over windows; the backward of the other modes
/// reads only shapes.
std::vector<Traced> UpsampleCost(LayerTape& tape, const LayerSpec& spec,
                                 const std::vector<Traced>& inputs, const TensorSpecs& outputs) {
  if (spec.args["mode"] != Value("area")) return CallCost()(tape, spec, inputs, outputs);
  return {ApplyAdaptiveMean(tape, inputs[0], outputs[0], outputs[0].shape.size() - 2)};
}

LayerType Upsample() {
  LayerType type = OneCall(
      "Upsample",
      {Field::Shape("size", "sizes of the output's spatial dims").AtLeast(1).Optional(),
       Field::Any("scale_factor", "in place of size: factors of the spatial dims").Optional(),
       Field::Choice(
           "mode",
           {"nearest", "linear", "bilinear", "bicubic", "trilinear", "nearest-exact", "area"},
           "how elements between are made")
           .Default("nearest"),
       Field::Bool("align_corners", "the outermost elements stay where they are").Optional(),
       Field::Bool("recompute_scale_factor", "the factors are those of the rounded sizes")
           .Optional()},
      "images of another size", "(N, C, ...) -> (N, C, sizes)", InferUpsample);
  type.finish = FinishUpsample;
  type.cost = UpsampleCost;
  type.unordered_on_gpu = [](const LayerSpec& spec) {
    return !spec.args["mode"].as_string().starts_with("nearest");
  };
  return type;
}

// ---- PixelShuffle and its reverse

/// The output's shape of PixelShuffle (`up`: channels become pixels) or PixelUnshuffle (pixels
/// become channels). `factor` is the name of the argument.
TensorSpec InferShuffle(const char* factor, bool up, const LayerSpec& spec,
                        const TensorSpec& input) {
  if (input.shape.size() < 4) RefuseShape("(batch, channels, height, width)", input);
  TensorSpec output = input;
  const int64_t by = spec.Int(factor), square = by * by;
  int64_t* sizes = output.shape.data() + output.shape.size() - 3;  // channels, height, width
  const bool fits = up ? sizes[0] % square == 0 : sizes[1] % by == 0 && sizes[2] % by == 0;
  if (!fits) {
    RefuseShape(up ? Str("channels divisible by ", factor, " squared, ", square)
                   : Str("height and width divisible by ", factor, " ", by),
                input);
  }
  sizes[0] = up ? sizes[0] / square : sizes[0] * square;
  for (int d = 1; d <= 2; ++d) sizes[d] = up ? sizes[d] * by : sizes[d] / by;
  return output;
}

LayerType Shuffle(std::string name, const char* factor, bool up, std::string help) {
  return OneCall(std::move(name),
                 {Field::Int(factor, "factor of height and width").AtLeast(1).AtMost(1 << 15)},
                 std::move(help), "(..., C, H, W) -> (..., C', H', W')",
                 [factor, up](const LayerSpec& spec, const TensorSpec& input) {
                   return InferShuffle(factor, up, spec, input);
                 });
}

// ---- Unfold and Fold

/// The number of windows in an image of these sizes (height, width); none if no window fits.
std::optional<int64_t> Windows(const LayerSpec& spec, const Shape& sizes) {
  const Shape kernel = spec.Ints("kernel_size"), stride = spec.Ints("stride");
  const Shape padding = spec.Ints("padding"), dilation = spec.Ints("dilation");
  Shape counts;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t room = sizes[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1;
    if (room < 0) return std::nullopt;
    counts.push_back(room / stride[d] + 1);
  }
  return Product(counts);
}

TensorSpec InferUnfold(const LayerSpec& spec, const TensorSpec& input) {
  ExpectDims(input, 4, "(batch, channels, height, width)");
  ExpectFloating(input);
  const auto windows = Windows(spec, {input.shape[2], input.shape[3]});
  if (!windows)
    RefuseShape(Str("room for a window of ", FormatShape(spec.Ints("kernel_size"))), input);
  const int64_t window = Product(spec.Ints("kernel_size"));
  return {{input.shape[0], Product({{input.shape[1], window}}), *windows}, input.dtype};
}

TensorSpec InferFold(const LayerSpec& spec, const TensorSpec& input) {
  const Shape sizes = spec.Ints("output_size");
  const int64_t window = Product(spec.Ints("kernel_size"));
  const auto windows = Windows(spec, sizes);
  if (!windows) {
    throw ShapeError(Str("has no room for a window of ", FormatShape(spec.Ints("kernel_size")),
                         " in output_size ", FormatShape(sizes)));
  }
  const std::string layout = Str("(batch, channels * ", window, ", ", *windows, ")");
  ExpectDims(input, 3, layout);
  if (input.shape[1] % window != 0 || input.shape[2] != *windows) RefuseShape(layout, input);
  ExpectFloating(input);
  return {{input.shape[0], input.shape[1] / window, sizes[0], sizes[1]}, input.dtype};
}

FieldTable WindowFields() {
  return {Field::Size("kernel_size", 2, "size of the window").AtLeast(1),
          Field::Size("dilation", 2, "distance of the window's elements").AtLeast(1).Default(1),
          Field::Size("padding", 2, "zeros on both sides of each dim").AtLeast(0).Default(0),
          Field::Size("stride", 2, "step of the window").AtLeast(1).Default(1)};
}

/// The cost of Fold. at::col2im allocates its image with the size of the windows, and the layer
/// copies it to memory of its own.
std::vector<Traced> FoldCost(LayerTape& tape, const LayerSpec& spec,
                             const std::vector<Traced>& inputs, const TensorSpecs& outputs) {
  std::vector<Traced> image = CallCost()(tape, spec, inputs, outputs);
  if (inputs[0].bytes() > image[0].bytes()) tape.Scratch(inputs[0].bytes(), 0);
  return image;
}

LayerType Fold() {
  FieldTable fields = WindowFields();
  fields.insert(fields.begin(), Field::Size("output_size", 2, "size of the image").AtLeast(1));
  LayerType type = OneCall("Fold", std::move(fields), "the image that windows add up to",
                           "(N, C', L) -> (N, C, H, W)", InferFold);
  type.cost = FoldCost;
  return type;
}

}  // namespace

std::vector<LayerType> SpatialTypes() {
  std::vector<LayerType> types;
  for (const PaddingKind& kind : kPaddings) {
    for (int dims = 1; dims <= 3; ++dims) types.push_back(Padding(kind, dims));
  }
  types.push_back(Upsample());
  types.push_back(Shuffle("PixelShuffle", "upscale_factor", true, "channels become pixels"));
  types.push_back(Shuffle("PixelUnshuffle", "downscale_factor", false, "pixels become channels"));
  types.push_back(OneCall("Unfold", WindowFields(), "the windows of an image, as columns",
                          "(N, C, H, W) -> (N, C', L)", InferUnfold));
  types.push_back(Fold());
  return types;
}

}  // namespace strata::layers
