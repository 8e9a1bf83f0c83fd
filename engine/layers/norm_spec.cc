// Declarations of LayerNorm, RMSNorm, GroupNorm, and of BatchNorm and InstanceNorm over 1 to 3
// dims.
#include <algorithm>

#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"

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

/// The cost of RMSNorm, which ATen composes of several operators: x * rsqrt(mean(x^2) + eps), then
/// the weight.
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
  for (Field& field : FieldTable{Device(), OwnDType()}) fields.push_back(std::move(field));
  return {.name = std::move(name),
          .fields = std::move(fields),
          .help = std::move(help),
          .shapes = "(..., normalized_shape) -> (..., normalized_shape)",
          .finish = FinishTrailing,
          .parameters = TrailingParameters,
          .infer = Unary(InferTrailing),
          .cost = std::move(cost),
          .is_token_wise = [](const LayerSpec& spec) {
            return spec.Ints("normalized_shape").size() == 1;
          }};
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

// ---- BatchNorm, InstanceNorm and GroupNorm: over the elements of a channel, or of a group of them

std::vector<ParameterSpec> ChannelNormParameters(const LayerSpec& spec) {
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

/// The shape rule for inputs (batch, features, and `dims` more dims). BatchNorm1d also takes
/// (batch, features).
UnaryRule InferChannels(size_t dims) {
  return [dims](const LayerSpec& spec, const TensorSpec& input) {
    const int64_t features = spec.Int("num_features");
    const std::string layout = Str("(batch, ", features, ", ", Spatial(dims).words, ")");
    const bool plain = spec.type == "BatchNorm1d" && input.shape.size() == 2;
    if (!plain) ExpectDims(input, dims + 2, layout);
    if (input.shape[1] != features) RefuseShape(layout, input);
    ExpectNormDType(spec, "affine", input);
    return input;
  };
}

TensorSpec InferInstanceNorm(const UnaryRule& channels, const LayerSpec& spec,
                             const TensorSpec& input) {
  TensorSpec output = channels(spec, input);
  if (input.elements() == input.shape[0] * input.shape[1]) {
    RefuseShape("more than one element in a channel, which else is its own mean", input);
  }
  return output;
}

/// The type of a BatchNorm or InstanceNorm. `by_default` is the default of affine and
/// track_running_stats. `statistics` returns the number of means.
LayerType ChannelNorm(const char* name, size_t dims, bool by_default, std::string help,
                      UnaryRule infer, double (*statistics)(const LayerSpec&, const Traced&)) {
  Field momentum = Field::Number("momentum", "share of a new batch; none = plain average");
  if (!by_default) momentum.help = "share of a new batch; none = 0";
  const std::string shape = Str("(N, num_features, ", Spatial(dims).letters, ")");
  return {.name = Str(name, dims, "d"),
          .fields = {Field::Int("num_features", "channels of the input").AtLeast(1), Epsilon(),
                     momentum.AtLeast(0).AtMost(1).OrNone().Default(0.1),
                     Affine("affine").Default(by_default),
                     Field::Bool("track_running_stats", "keeps averages for evaluation")
                         .Default(by_default),
                     Device(), OwnDType()},
          .help = std::move(help),
          .shapes = Str(shape, " -> ", shape),
          .parameters = ChannelNormParameters,
          .infer = Unary(std::move(infer)),
          .cost = NormCost(statistics)};
}

LayerType BatchNorm(size_t dims) {
  return ChannelNorm(
      "BatchNorm", dims, true, "mean 0 and variance 1 of each channel over the micro-batch",
      InferChannels(dims),
      [](const LayerSpec& spec, const Traced&) { return spec.Number("num_features"); });
}

LayerType InstanceNorm(size_t dims) {
  const auto infer = [channels = InferChannels(dims)](const LayerSpec& spec,
                                                      const TensorSpec& input) {
    return InferInstanceNorm(channels, spec, input);
  };
  return ChannelNorm("InstanceNorm", dims, false,
                     "mean 0 and variance 1 of each channel of each sample", infer,
                     [](const LayerSpec& spec, const Traced& x) {
                       return static_cast<double>(x.spec.shape[0]) * spec.Number("num_features");
                     });
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
                     Affine("affine"), Device(), OwnDType()},
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
  std::vector<LayerType> types = {LayerNorm(), RmsNorm(), GroupNorm()};
  for (size_t dims = 1; dims <= 3; ++dims) {
    types.push_back(BatchNorm(dims));
    types.push_back(InstanceNorm(dims));
  }
  return types;
}

}  // namespace strata::layers
