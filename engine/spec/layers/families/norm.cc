// Declarations of LayerNorm, RMSNorm, BatchNorm2d and GroupNorm.
#include <algorithm>

#include "engine/spec/layers/rules.h"

namespace strata::layers {
namespace {

void ExpectNormDType(const LayerSpec& spec, const char* affine, const TensorSpec& input) {
  spec.args[affine].as_bool() ? ExpectParameterDType(input) : ExpectFloating(input);
}

void FinishTrailing(LayerSpec& spec) {
  if (spec.args["normalized_shape"].as_ints().empty()) {
    throw ConfigError("normalized_shape is empty");
  }
}

TensorSpec InferTrailing(const LayerSpec& spec, const TensorSpec& input) {
  const Shape shape = spec.args["normalized_shape"].as_ints();
  if (input.shape.size() < shape.size() ||
      !std::equal(shape.rbegin(), shape.rend(), input.shape.rbegin())) {
    RefuseShape(Str("the last dims to be ", FormatShape(shape)), input);
  }
  ExpectNormDType(spec, "elementwise_affine", input);
  return input;
}

std::vector<ParameterSpec> LayerNormParameters(const LayerSpec& spec) {
  if (!spec.args["elementwise_affine"].as_bool()) return {};
  return AffineParameters(spec.args["normalized_shape"].as_ints(), spec.args["bias"].as_bool());
}

std::vector<ParameterSpec> RmsNormParameters(const LayerSpec& spec) {
  if (!spec.args["elementwise_affine"].as_bool()) return {};
  return AffineParameters(spec.args["normalized_shape"].as_ints(), /*bias=*/false);
}

std::vector<ParameterSpec> BatchNormParameters(const LayerSpec& spec) {
  const Shape shape = {spec.args["num_features"].as_int()};
  std::vector<ParameterSpec> specs;
  if (spec.args["affine"].as_bool()) Append(specs, AffineParameters(shape, /*bias=*/true));
  if (spec.args["track_running_stats"].as_bool()) {
    Append(specs,
           {{.name = "running_mean", .shape = shape, .buffer = true},
            {.name = "running_var", .shape = shape, .buffer = true},
            {.name = "num_batches_tracked", .shape = {}, .dtype = DType::kInt64, .buffer = true}});
  }
  return specs;
}

TensorSpec InferBatchNorm(const LayerSpec& spec, const TensorSpec& input) {
  const int64_t features = spec.args["num_features"].as_int();
  const std::string layout = Str("(batch, ", features, ", height, width)");
  ExpectDims(input, 4, layout);
  if (input.shape[1] != features) RefuseShape(layout, input);
  ExpectNormDType(spec, "affine", input);
  return input;
}

void FinishGroupNorm(LayerSpec& spec) {
  const int64_t channels = spec.args["num_channels"].as_int();
  const int64_t groups = spec.args["num_groups"].as_int();
  if (channels % groups != 0) {
    throw ConfigError(Str("num_channels ", channels, " is not divisible by num_groups ", groups));
  }
}

std::vector<ParameterSpec> GroupNormParameters(const LayerSpec& spec) {
  if (!spec.args["affine"].as_bool()) return {};
  return AffineParameters({spec.args["num_channels"].as_int()}, /*bias=*/true);
}

TensorSpec InferGroupNorm(const LayerSpec& spec, const TensorSpec& input) {
  const int64_t channels = spec.args["num_channels"].as_int();
  if (input.shape.size() < 2 || input.shape[1] != channels) {
    RefuseShape(Str("(batch, ", channels, ", ...)"), input);
  }
  if (input.elements() == spec.args["num_groups"].as_int()) {
    RefuseShape("more than one element in a group, which else is its own mean", input);
  }
  ExpectNormDType(spec, "affine", input);
  return input;
}

Field NormalizedShape() {
  return Field::Shape("normalized_shape", "the last dims, over which it normalises").AtLeast(1);
}

Field Epsilon() { return Field::Number("eps", "added to the variance").AtLeast(0).Default(1e-5); }

Field Affine(std::string name) {
  return Field::Bool(std::move(name), "has learned factors").Default(true);
}

LayerType LayerNorm() {
  return {.name = "LayerNorm",
          .fields = {NormalizedShape(), Epsilon(), Affine("elementwise_affine"),
                     Field::Bool("bias", "has learned offsets too").Default(true), Device(),
                     ParameterDType()},
          .help = "mean 0 and variance 1 over the last dims",
          .shapes = "(..., normalized_shape) -> (..., normalized_shape)",
          .splits = {"sequence"},
          .finish = FinishTrailing,
          .parameters = LayerNormParameters,
          .infer = Unary(InferTrailing)};
}

LayerType RmsNorm() {
  return {.name = "RMSNorm",
          .fields = {NormalizedShape(),
                     Field::Number("eps", "added to the mean square; none = the dtype's epsilon")
                         .AtLeast(0)
                         .Optional(),
                     Affine("elementwise_affine"), Device(), ParameterDType()},
          .help = "root mean square 1 over the last dims",
          .shapes = "(..., normalized_shape) -> (..., normalized_shape)",
          .finish = FinishTrailing,
          .parameters = RmsNormParameters,
          .infer = Unary(InferTrailing)};
}

LayerType BatchNorm2d() {
  return {
      .name = "BatchNorm2d",
      .fields = {Field::Int("num_features", "channels of the input").AtLeast(1), Epsilon(),
                 Field::Number("momentum", "share of a new batch; none = plain average")
                     .AtLeast(0)
                     .AtMost(1)
                     .OrNone()
                     .Default(0.1),
                 Affine("affine"),
                 Field::Bool("track_running_stats", "keeps averages for evaluation").Default(true),
                 Device(), ParameterDType()},
      .help = "mean 0 and variance 1 of each channel over the micro-batch",
      .shapes = "(N, num_features, H, W) -> (N, num_features, H, W)",
      .parameters = BatchNormParameters,
      .infer = Unary(InferBatchNorm)};
}

LayerType GroupNorm() {
  return {.name = "GroupNorm",
          .fields = {Field::Int("num_groups", "groups of channels").AtLeast(1),
                     Field::Int("num_channels", "channels of the input").AtLeast(1), Epsilon(),
                     Affine("affine"), Device(), ParameterDType()},
          .help = "mean 0 and variance 1 of each group of channels",
          .shapes = "(N, num_channels, ...) -> (N, num_channels, ...)",
          .finish = FinishGroupNorm,
          .parameters = GroupNormParameters,
          .infer = Unary(InferGroupNorm)};
}

}  // namespace

std::vector<LayerType> NormalizationTypes() {
  return {LayerNorm(), RmsNorm(), BatchNorm2d(), GroupNorm()};
}

}  // namespace strata::layers
