// Declarations of the convolutions and transposed convolutions over 1 to 3 dims.
#include <algorithm>
#include <functional>
#include <utility>

#include "engine/layers/conv_memory.h"
#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

void CheckGroups(const LayerSpec& spec) {
  for (const char* channels : {"in_channels", "out_channels"}) {
    ExpectDivisible(spec, channels, "groups");
  }
}

void Finish(LayerSpec& spec) {
  CheckGroups(spec);
  const Shape stride = spec.Ints("stride");
  if (spec.args["padding"] == Value("same") &&
      std::ranges::any_of(stride, [](int64_t s) { return s != 1; })) {
    throw ConfigError("padding \"same\" needs stride 1");
  }
}

bool IsTransposed(const LayerSpec& spec) { return spec.args.Has("output_padding"); }

std::vector<ParameterSpec> Parameters(const LayerSpec& spec) {
  const int64_t in = spec.Int("in_channels"), out = spec.Int("out_channels");
  const bool is_transposed = IsTransposed(spec);
  Shape shape = {is_transposed ? in : out, (is_transposed ? out : in) / spec.Int("groups")};
  for (const int64_t size : spec.Ints("kernel_size")) shape.push_back(size);
  std::vector<ParameterSpec> specs = {{.name = "weight", .shape = std::move(shape)}};
  if (spec.Bool("bias")) specs.push_back({.name = "bias", .shape = {out}});
  return specs;
}

/// Padding before and after one spatial dim. If "same" needs an odd number of elements, the
/// additional one goes after, as in PyTorch.
struct Padding {
  int64_t before;
  int64_t after;
};

Padding PaddingOf(const LayerSpec& spec, size_t d, int64_t reach) {
  const Value& padding = spec.args["padding"];
  if (padding == Value("valid")) return {0, 0};
  if (padding == Value("same")) return {reach / 2, reach - reach / 2};
  const int64_t each = padding.as_ints()[d];
  return {each, each};
}

/// True if the padded copy of the input repeats elements of it. The gradient of such padding adds
/// up in no fixed order on a GPU.
bool RepeatsElements(const LayerSpec& spec) {
  const std::string& mode = spec.args["padding_mode"].as_string();
  if (mode != "reflect" && mode != "replicate") return false;
  const Shape kernel = spec.Ints("kernel_size"), dilation = spec.Ints("dilation");
  for (size_t d = 0; d < kernel.size(); ++d) {
    const Padding padding = PaddingOf(spec, d, dilation[d] * (kernel[d] - 1));
    if (padding.before > 0 || padding.after > 0) return true;
  }
  return false;
}

/// Returns the padding of spatial dim d that the kernel of the convolution can add: zeros, as many
/// on both sides. at::pad adds the rest before.
int64_t InnerPadding(const LayerSpec& spec, size_t d) {
  if (IsTransposed(spec)) return spec.Ints("padding")[d];
  if (spec.args["padding_mode"] != Value("zeros")) return 0;
  const int64_t reach = spec.Ints("dilation")[d] * (spec.Ints("kernel_size")[d] - 1);
  const Padding padding = PaddingOf(spec, d, reach);
  return std::min(padding.before, padding.after);
}

/// Records the padded copy of x that the convolution takes if it cannot do all of the padding
/// itself: it pads with zeros only, and equally on both sides. Returns the copy, or x.
Traced ApplyOuterPadding(LayerTape& tape, const LayerSpec& spec, const Traced& x) {
  if (IsTransposed(spec)) return x;
  const std::string& mode = spec.args["padding_mode"].as_string();
  const Shape kernel = spec.Ints("kernel_size"), dilation = spec.Ints("dilation");
  TensorSpec padded = x.spec;
  for (size_t d = 0; d < kernel.size(); ++d) {
    const Padding padding = PaddingOf(spec, d, dilation[d] * (kernel[d] - 1));
    padded.shape[d + 2] += padding.before + padding.after - 2 * InnerPadding(spec, d);
  }
  if (padded == x.spec) return x;
  const Traced copy = tape.Fresh(std::move(padded), x.parts);
  TouchElements(tape, x, copy);
  if (mode == "reflect" || mode == "replicate") tape.Keep(x);
  return copy;
}

/// The call of the convolution `spec` with input x, or its padded copy, and output y.
ConvCall CallOf(const LayerSpec& spec, const Traced& x, const Traced& y, int threads) {
  ConvCall call = {.input = x.spec.shape,
                   .output = y.spec.shape,
                   .window = spec.Ints("kernel_size"),
                   .stride = spec.Ints("stride"),
                   .padding = {},
                   .dilation = spec.Ints("dilation"),
                   .is_transposed = IsTransposed(spec),
                   .groups = spec.Int("groups"),
                   .element_bytes = DTypeSize(x.type()),
                   .threads = threads};
  for (size_t d = 0; d < call.window.size(); ++d) {
    call.padding.push_back(InnerPadding(spec, d));
  }
  return call;
}

/// Adds the scratch memory of the kernels. `padded` is x, or its copy with padding; the copy's
/// gradient exists before x's.
void AddScratch(LayerTape& tape, const LayerSpec& spec, const Traced& x, const Traced& padded,
                const Traced& y) {
  const ConvScratch scratch = ScratchOf(CallOf(spec, padded, y, tape.host().threads));
  const double copy = padded.storage == x.storage ? 0 : padded.bytes();
  tape.Scratch(copy + scratch.forward, spec.frozen ? 0 : scratch.weight_grad);
  tape.InputGradientScratch(std::max(copy, scratch.input_grad + copy - (copy > 0 ? x.bytes() : 0)));
}

/// The cost of a convolution. Each position of the output (if transposed, of the input) is
/// multiplied with all elements of the weight once.
std::vector<Traced> Cost(LayerTape& tape, const LayerSpec& spec, const std::vector<Traced>& inputs,
                         const TensorSpecs& outputs) {
  const Traced x = ApplyOuterPadding(tape, spec, inputs[0]);
  const Traced y = tape.Fresh(outputs[0]);
  const auto weights = static_cast<double>(Parameters(spec)[0].elements());
  const double meetings = IsTransposed(spec) ? x.elements() / spec.Number("in_channels")
                                             : y.elements() / spec.Number("out_channels");
  MultiplyDeferred(tape, spec, x, y, 2 * meetings * weights, weights);
  tape.Keep(x);
  if (tape.host().is_cpu) {
    AddScratch(tape, spec, inputs[0], x, y);
  } else {
    tape.Scratch(0, 4 * weights);  // the weight's gradient is computed, then added
  }
  return {y};
}

/// Throws ShapeError for reflected or circular padding that is larger than the input: there are no
/// more values to pad with.
void CheckPaddingMode(const LayerSpec& spec, const Padding& padding, int64_t size,
                      const TensorSpec& input) {
  const std::string& mode = spec.args["padding_mode"].as_string();
  const int64_t most = mode == "reflect" ? size - 1 : size;
  const int64_t largest = std::max(padding.before, padding.after);
  if ((mode != "reflect" && mode != "circular") || largest <= most) return;
  RefuseShape(Str("more than ", mode == "reflect" ? largest : largest - 1,
                  " in every spatial dim (padding_mode ", mode, ")"),
              input);
}

/// The output's shape. `size` maps the input's size of a spatial dim and the number of that dim to
/// the output's size.
TensorSpec Convolved(const LayerSpec& spec, const TensorSpec& input,
                     const std::function<int64_t(int64_t, size_t)>& size) {
  const size_t spatial = spec.Ints("kernel_size").size();
  const std::string layout =
      Str("(batch, ", spec.Int("in_channels"), ", ", Spatial(spatial).words, ")");
  ExpectDims(input, spatial + 2, layout);
  if (input.shape[1] != spec.Int("in_channels")) RefuseShape(layout, input);
  ExpectParameterDType(input);
  TensorSpec output = input;
  output.shape[1] = spec.Int("out_channels");
  for (size_t d = 0; d < spatial; ++d) output.shape[d + 2] = size(input.shape[d + 2], d);
  return output;
}

TensorSpec Infer(const LayerSpec& spec, const TensorSpec& input) {
  const Shape kernel = spec.Ints("kernel_size"), stride = spec.Ints("stride");
  const Shape dilation = spec.Ints("dilation");
  return Convolved(spec, input, [&](int64_t size, size_t d) {
    const int64_t reach = dilation[d] * (kernel[d] - 1);
    const Padding padding = PaddingOf(spec, d, reach);
    CheckPaddingMode(spec, padding, size, input);
    const int64_t room = size + padding.before + padding.after - reach - 1;
    if (room < 0) {
      RefuseShape(Str("at least ", size - room, " in spatial dim ", d,
                      ", since the kernel reaches over ", reach + 1),
                  input);
    }
    return room / stride[d] + 1;
  });
}

void FinishTransposed(LayerSpec& spec) {
  CheckGroups(spec);
  const Shape stride = spec.Ints("stride"), dilation = spec.Ints("dilation");
  const Shape extra = spec.Ints("output_padding");
  for (size_t d = 0; d < extra.size(); ++d) {
    if (extra[d] >= std::max(stride[d], dilation[d])) {
      throw ConfigError("output_padding must be smaller than stride or dilation");
    }
  }
}

TensorSpec InferTransposed(const LayerSpec& spec, const TensorSpec& input) {
  const Shape kernel = spec.Ints("kernel_size"), stride = spec.Ints("stride");
  const Shape padding = spec.Ints("padding"), dilation = spec.Ints("dilation");
  const Shape extra = spec.Ints("output_padding");
  return Convolved(spec, input, [&](int64_t size, size_t d) {
    const int64_t grown =
        (size - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel[d] - 1) + extra[d] + 1;
    if (grown < 1) {
      RefuseShape(Str("a larger spatial dim ", d, ": nothing is left after padding ", padding[d]),
                  input);
    }
    return grown;
  });
}

/// The arguments that all convolutions have.
struct ConvFields {
  int dims;
  Field in = Field::Int("in_channels", "channels of the input").AtLeast(1);
  Field out = Field::Int("out_channels", "channels of the output").AtLeast(1);
  Field kernel = Field::Size("kernel_size", dims, "size of the kernel").AtLeast(1);
  Field stride = Field::Size("stride", dims, "step of the kernel").AtLeast(1).Default(1);
  Field padding =
      Field::Size("padding", dims, "added on both sides of each spatial dim").AtLeast(0).Default(0);
  Field dilation =
      Field::Size("dilation", dims, "distance of the kernel's elements").AtLeast(1).Default(1);
  Field groups =
      Field::Int("groups", "blocks of channels that see only each other").AtLeast(1).Default(1);
  Field bias = Field::Bool("bias", "adds a learned number to each channel").Default(true);

  static Field PaddingMode(std::vector<std::string> modes) {
    return Field::Choice("padding_mode", std::move(modes), "what the padding holds")
        .Default("zeros");
  }
};

LayerType ConvolutionType(std::string name, int dims, const char* what, FieldTable fields,
                          void (*finish)(LayerSpec&), UnaryRule infer) {
  const auto& [words, letters, primed] = Spatial(static_cast<size_t>(dims));
  return {.name = std::move(name),
          .fields = std::move(fields),
          .help = Str(what, " over (batch, channels, ", words, ")"),
          .shapes = Str("(N, in_channels, ", letters, ") -> (N, out_channels, ", primed, ")"),
          .finish = finish,
          .parameters = Parameters,
          .infer = Unary(std::move(infer)),
          .cost = Cost};
}

LayerType Convolution(int dims) {
  ConvFields f = {dims};
  LayerType type = ConvolutionType(
      Str("Conv", dims, "d"), dims, "convolution",
      {f.in, f.out, f.kernel, f.stride, f.padding.Or({"same", "valid"}), f.dilation, f.groups,
       f.bias, f.PaddingMode({"zeros", "reflect", "replicate", "circular"}), Device(), OwnDType()},
      Finish, Infer);
  if (dims > 1) type.unordered_on_gpu = RepeatsElements;
  return type;
}

LayerType TransposedConvolution(int dims) {
  const ConvFields f = {dims};
  const Field output_padding =
      Field::Size("output_padding", dims, "added to one side of each output dim")
          .AtLeast(0)
          .Default(0);
  return ConvolutionType(Str("ConvTranspose", dims, "d"), dims, "transposed convolution",
                         {f.in, f.out, f.kernel, f.stride, f.padding, output_padding, f.groups,
                          f.bias, f.dilation, f.PaddingMode({"zeros"}), Device(), OwnDType()},
                         FinishTransposed, InferTransposed);
}

}  // namespace

std::vector<LayerType> ConvolutionTypes() {
  std::vector<LayerType> types;
  for (int dims = 1; dims <= 3; ++dims) types.push_back(Convolution(dims));
  for (int dims = 1; dims <= 3; ++dims) types.push_back(TransposedConvolution(dims));
  return types;
}

}  // namespace strata::layers
