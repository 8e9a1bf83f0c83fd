// Declarations of Conv1d, Conv2d and ConvTranspose2d.
#include <algorithm>

#include "engine/spec/layers/rules.h"

namespace strata::layers {
namespace {

void CheckGroups(const LayerSpec& spec) {
  const int64_t groups = spec.args["groups"].as_int();
  for (const char* channels : {"in_channels", "out_channels"}) {
    const int64_t n = spec.args[channels].as_int();
    if (n % groups != 0) {
      throw ConfigError(Str(channels, " ", n, " is not divisible by groups ", groups));
    }
  }
}

void CheckSamePadding(const LayerSpec& spec) {
  if (spec.args["padding"] != Value("same")) return;
  const Shape stride = spec.args["stride"].as_ints();
  if (std::any_of(stride.begin(), stride.end(), [](int64_t s) { return s != 1; })) {
    throw ConfigError("padding \"same\" needs stride 1");
  }
}

void Finish(LayerSpec& spec) {
  CheckGroups(spec);
  CheckSamePadding(spec);
}

std::vector<ParameterSpec> Weights(const LayerSpec& spec, const char* first, const char* second) {
  Shape shape = {spec.args[first].as_int(),
                 spec.args[second].as_int() / spec.args["groups"].as_int()};
  for (int64_t k : spec.args["kernel_size"].as_ints()) shape.push_back(k);
  std::vector<ParameterSpec> specs = {{.name = "weight", .shape = shape}};
  if (spec.args["bias"].as_bool()) {
    specs.push_back({.name = "bias", .shape = {spec.args["out_channels"].as_int()}});
  }
  return specs;
}

std::vector<ParameterSpec> Parameters(const LayerSpec& spec) {
  return Weights(spec, "out_channels", "in_channels");
}

std::vector<ParameterSpec> TransposedParameters(const LayerSpec& spec) {
  return Weights(spec, "in_channels", "out_channels");
}

/// Padding before and after one spatial dim. For "same" an odd element goes after, as in PyTorch.
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

/// Refuses reflected and circular padding that is larger than the input, which has no more values.
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

void ExpectImage(const LayerSpec& spec, const TensorSpec& input, size_t spatial) {
  const int64_t channels = spec.args["in_channels"].as_int();
  const std::string layout =
      Str("(batch, ", channels, spatial == 1 ? ", length)" : ", height, width)");
  ExpectDims(input, spatial + 2, layout);
  if (input.shape[1] != channels) RefuseShape(layout, input);
  ExpectParameterDType(input);
}

template <size_t kSpatial>
TensorSpec Infer(const LayerSpec& spec, const TensorSpec& input) {
  ExpectImage(spec, input, kSpatial);
  const Shape kernel = spec.args["kernel_size"].as_ints();
  const Shape stride = spec.args["stride"].as_ints();
  const Shape dilation = spec.args["dilation"].as_ints();
  TensorSpec output = input;
  output.shape[1] = spec.args["out_channels"].as_int();
  for (size_t d = 0; d < kSpatial; ++d) {
    const int64_t size = input.shape[d + 2];
    const int64_t reach = dilation[d] * (kernel[d] - 1);
    const Padding padding = PaddingOf(spec, d, reach);
    CheckPaddingMode(spec, padding, size, input);
    const int64_t room = size + padding.before + padding.after - reach - 1;
    if (room < 0) {
      RefuseShape(Str("at least ", size - room, " in spatial dim ", d,
                      ", since the kernel reaches over ", reach + 1),
                  input);
    }
    output.shape[d + 2] = room / stride[d] + 1;
  }
  return output;
}

void FinishTransposed(LayerSpec& spec) {
  CheckGroups(spec);
  const Shape stride = spec.args["stride"].as_ints();
  const Shape dilation = spec.args["dilation"].as_ints();
  const Shape extra = spec.args["output_padding"].as_ints();
  for (size_t d = 0; d < extra.size(); ++d) {
    if (extra[d] >= std::max(stride[d], dilation[d])) {
      throw ConfigError("output_padding must be smaller than stride or dilation");
    }
  }
}

TensorSpec InferTransposed(const LayerSpec& spec, const TensorSpec& input) {
  ExpectImage(spec, input, 2);
  const Shape kernel = spec.args["kernel_size"].as_ints();
  const Shape stride = spec.args["stride"].as_ints();
  const Shape padding = spec.args["padding"].as_ints();
  const Shape dilation = spec.args["dilation"].as_ints();
  const Shape extra = spec.args["output_padding"].as_ints();
  TensorSpec output = input;
  output.shape[1] = spec.args["out_channels"].as_int();
  for (size_t d = 0; d < 2; ++d) {
    const int64_t size = (input.shape[d + 2] - 1) * stride[d] - 2 * padding[d] +
                         dilation[d] * (kernel[d] - 1) + extra[d] + 1;
    if (size < 1) {
      RefuseShape(Str("a larger spatial dim ", d, ": nothing is left after padding ", padding[d]),
                  input);
    }
    output.shape[d + 2] = size;
  }
  return output;
}

Field InChannels() { return Field::Int("in_channels", "channels of the input").AtLeast(1); }

Field OutChannels() { return Field::Int("out_channels", "channels of the output").AtLeast(1); }

Field Kernel(int dims) { return Field::Size("kernel_size", dims, "size of the kernel").AtLeast(1); }

Field Stride(int dims) {
  return Field::Size("stride", dims, "step of the kernel").AtLeast(1).Default(1);
}

Field ZeroPadding(int dims) {
  return Field::Size("padding", dims, "added on both sides of each spatial dim")
      .AtLeast(0)
      .Default(0);
}

Field Dilation(int dims) {
  return Field::Size("dilation", dims, "distance of the kernel's elements").AtLeast(1).Default(1);
}

Field Groups() {
  return Field::Int("groups", "blocks of channels that see only each other").AtLeast(1).Default(1);
}

Field Bias() { return Field::Bool("bias", "adds a learned number to each channel").Default(true); }

Field PaddingMode(std::vector<std::string> modes) {
  return Field::Choice("padding_mode", std::move(modes), "what the padding holds").Default("zeros");
}

template <size_t kSpatial>
LayerType Convolution(std::string name, std::string help) {
  return {
      .name = std::move(name),
      .fields = {InChannels(), OutChannels(), Kernel(kSpatial), Stride(kSpatial),
                 ZeroPadding(kSpatial).Or({"same", "valid"}), Dilation(kSpatial), Groups(), Bias(),
                 PaddingMode({"zeros", "reflect", "replicate", "circular"}), Device(),
                 ParameterDType()},
      .help = std::move(help),
      .shapes = kSpatial == 1 ? "(N, in_channels, L) -> (N, out_channels, L')"
                              : "(N, in_channels, H, W) -> (N, out_channels, H', W')",
      .finish = Finish,
      .parameters = Parameters,
      .infer = Unary(Infer<kSpatial>),
  };
}

LayerType TransposedConvolution() {
  return {
      .name = "ConvTranspose2d",
      .fields = {InChannels(), OutChannels(), Kernel(2), Stride(2), ZeroPadding(2),
                 Field::Size("output_padding", 2, "added to one side of each output dim")
                     .AtLeast(0)
                     .Default(0),
                 Groups(), Bias(), Dilation(2), PaddingMode({"zeros"}), Device(), ParameterDType()},
      .help = "transposed convolution over (batch, channels, height, width)",
      .shapes = "(N, in_channels, H, W) -> (N, out_channels, H', W')",
      .finish = FinishTransposed,
      .parameters = TransposedParameters,
      .infer = Unary(InferTransposed),
  };
}

}  // namespace

std::vector<LayerType> ConvolutionTypes() {
  return {Convolution<1>("Conv1d", "convolution over (batch, channels, length)"),
          Convolution<2>("Conv2d", "convolution over (batch, channels, height, width)"),
          TransposedConvolution()};
}

}  // namespace strata::layers
