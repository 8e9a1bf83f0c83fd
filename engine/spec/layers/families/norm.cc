// Declarations of LayerNorm, RMSNorm, BatchNorm2d and GroupNorm.
#include <algorithm>

#include "engine/spec/layers/costs/cost_rules.h"
#include "engine/spec/layers/rules.h"

namespace strata::layers {
namespace {

/// Throws ShapeError unless a norm with these parameters can take the input's dtype.
void ExpectNormDType(const LayerSpec& spec, const char* affine, const TensorSpec& input) {
  spec.Bool(affine) ? ExpectParameterDType(input) : ExpectFloating(input);
}

Field Epsilon() { return Field::Number("eps", "added to the variance").AtLeast(0).Default(1e-5); }

Field Affine(std::string name) {
  return Field::Bool(std::move(name), "has learned factors").Default(true);
}

// ---- LayerNorm and RMSNorm: over the last dims

void FinishTrailing(LayerSpec& spec) {
  if (spec.Ints("normalized_shape").empty()) throw ConfigError("normalized_shape is empty");
}

TensorSpec InferTrailing(const LayerSpec& spec, const TensorSpec& input) {
  const Shape shape = spec.Ints("normalized_shape");
  if (input.shape.size() < shape.size() ||
      !std::equal(shape.rbegin(), shape.rend(), input.shape.rbegin())) {
    RefuseShape(Str("the last dims to be ", FormatShape(shape)), input);
  }
  ExpectNormDType(spec, "elementwise_affine", input);
  return input;
}

std::vector<ParameterSpec> TrailingParameters(const LayerSpec& spec) {
  if (!spec.Bool("elementwise_affine")) return {};
  const bool has_bias = spec.args.Has("bias") && spec.Bool("bias");
  return AffineParameters(spec.Ints("normalized_shape"), has_bias);
}

double TrailingStatistics(const LayerSpec& spec, const Traced& x) {
  return x.elements() / static_cast<double>(Product(spec.Ints("normalized_shape")));
}

/// ATen composes it of operators: x * rsqrt(mean(x^2)), then the weight.
std::vector<Traced> RmsNormCost(LayerTape& tape, const LayerSpec& spec,
                                const std::vector<Traced>& inputs, const TensorSpecs&) {
  const Traced& x = inputs[0];
  const Traced y = Normalize(tape, x, TrailingStatistics(spec, x));
  tape.Keep(tape.Fresh(x));
  tape.Touch(3 * x.bytes(), 3 * x.bytes());
  return {y};
}

LayerType TrailingNorm(std::string name, FieldTable fields, std::string help, CostRule cost) {
  fields.insert(
      fields.begin(),
      Field::Shape("normalized_shape", "the last dims, over which it normalises").AtLeast(1));
  for (Field& field : FieldTable{Device(), ParameterDType()}) fields.push_back(std::move(field));
  return {.name = std::move(name),
          .fields = std::move(fields),
          .help = std::move(help),
          .shapes = "(..., normalized_shape) -> (..., normalized_shape)",
          .finish = FinishTrailing,
          .parameters = TrailingParameters,
          .infer = Unary(InferTrailing),
          .cost = std::move(cost)};
}

LayerType LayerNorm() {
  const Field bias = Field::Bool("bias", "has learned offsets too").Default(true);
  LayerType type =
      TrailingNorm("LayerNorm", {Epsilon(), Affine("elementwise_affine"), bias},
                   "mean 0 and variance 1 over the last dims", NormCost(TrailingStatistics));
  type.splits = {"sequence"};
  return type;
}

LayerType RmsNorm() {
  Field epsilon = Field::Number("eps", "added to the mean square; none = the dtype's epsilon");
  return TrailingNorm("RMSNorm", {epsilon.AtLeast(0).Optional(), Affine("elementwise_affine")},
                      "root mean square 1 over the last dims", RmsNormCost);
}

// ---- BatchNorm and GroupNorm: over what a channel, or a group of them, has

std::vector<ParameterSpec> BatchNormParameters(const LayerSpec& spec) {
  const Shape shape = {spec.Int("num_features")};
  std::vector<ParameterSpec> specs;
  if (spec.Bool("affine")) Append(specs, AffineParameters(shape, /*bias=*/true));
  if (spec.Bool("track_running_stats")) {
    Append(specs,
           {{.name = "running_mean", .shape = shape, .buffer = true},
            {.name = "running_var", .shape = shape, .buffer = true},
            {.name = "num_batches_tracked", .shape = {}, .dtype = DType::kInt64, .buffer = true}});
  }
  return specs;
}

LayerType BatchNorm(size_t dims) {
  const auto infer = [dims](const LayerSpec& spec, const TensorSpec& input) {
    const int64_t features = spec.Int("num_features");
    const std::string layout = Str("(batch, ", features, ", ", Spatial(dims).words, ")");
    ExpectDims(input, dims + 2, layout);
    if (input.shape[1] != features) RefuseShape(layout, input);
    ExpectNormDType(spec, "affine", input);
    return input;
  };
  const std::string shape = Str("(N, num_features, ", Spatial(dims).letters, ")");
  return {
      .name = Str("BatchNorm", dims, "d"),
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
      .shapes = Str(shape, " -> ", shape),
      .parameters = BatchNormParameters,
      .infer = Unary(infer),
      .cost = NormCost(
          [](const LayerSpec& spec, const Traced&) { return spec.Number("num_features"); })};
}

std::vector<ParameterSpec> GroupNormParameters(const LayerSpec& spec) {
  if (!spec.Bool("affine")) return {};
  return AffineParameters({spec.Int("num_channels")}, /*bias=*/true);
}

TensorSpec InferGroupNorm(const LayerSpec& spec, const TensorSpec& input) {
  const int64_t channels = spec.Int("num_channels");
  if (input.shape.size() < 2 || input.shape[1] != channels) {
    RefuseShape(Str("(batch, ", channels, ", ...)"), input);
  }
  if (input.elements() == spec.Int("num_groups")) {
    RefuseShape("more than one element in a group, which else is its own mean", input);
  }
  ExpectNormDType(spec, "affine", input);
  return input;
}

LayerType GroupNorm() {
  return {.name = "GroupNorm",
          .fields = {Field::Int("num_groups", "groups of channels").AtLeast(1),
                     Field::Int("num_channels", "channels of the input").AtLeast(1), Epsilon(),
                     Affine("affine"), Device(), ParameterDType()},
          .help = "mean 0 and variance 1 of each group of channels",
          .shapes = "(N, num_channels, ...) -> (N, num_channels, ...)",
          .finish = [](LayerSpec& spec) { ExpectDivisible(spec, "num_channels", "num_groups"); },
          .parameters = GroupNormParameters,
          .infer = Unary(InferGroupNorm),
          .cost = NormCost([](const LayerSpec& spec, const Traced& x) {
            return static_cast<double>(x.spec.shape[0]) * spec.Number("num_groups");
          })};
}

}  // namespace

std::vector<LayerType> NormalizationTypes() {
  return {LayerNorm(), RmsNorm(), BatchNorm(2), GroupNorm()};
}

}  // namespace strata::layers
