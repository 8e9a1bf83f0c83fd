#include "engine/layers/rules.h"

#include <array>
#include <iterator>
#include <utility>

namespace strata::layers {

InferFunction Unary(UnaryRule rule) {
  return [rule = std::move(rule)](const LayerSpec& spec, const TensorSpecs& inputs,
                                  Script*) -> TensorSpecs {
    if (inputs.size() != 1) {
      throw ShapeError(Str("expects one tensor, got ", ToString(inputs)));
    }
    return {rule(spec, inputs[0])};
  };
}

TensorSpec Same(const LayerSpec&, const TensorSpec& input) { return input; }

void RefuseShape(std::string_view expected, const TensorSpec& input) {
  throw ShapeError(Str("expects ", expected, ", got ", FormatShape(input.shape)));
}

void ExpectParameterDType(const TensorSpec& input) {
  if (input.dtype == DType::kFloat32) return;
  throw ShapeError(Str("expects float32, got ", input.ToString()));
}

void ExpectFloating(const TensorSpec& input) {
  if (IsFloating(input.dtype)) return;
  throw ShapeError(Str("expects floating numbers, got ", input.ToString()));
}

void ExpectDims(const TensorSpec& input, size_t dims, std::string_view layout) {
  if (input.shape.size() != dims) RefuseShape(layout, input);
}

const SpatialNames& Spatial(size_t dims) {
  static constexpr std::array<SpatialNames, 3> kNames = {
      {{"length", "L", "L'"},
       {"height, width", "H, W", "H', W'"},
       {"depth, height, width", "D, H, W", "D', H', W'"}}};
  return kNames.at(dims - 1);
}

void ExpectDivisible(const LayerSpec& spec, std::string_view number, std::string_view divisor) {
  if (spec.Int(number) % spec.Int(divisor) == 0) return;
  throw ConfigError(
      Str(number, " ", spec.Int(number), " is not divisible by ", divisor, " ", spec.Int(divisor)));
}

int64_t WrapDim(int64_t dim, const TensorSpec& input, std::string_view name) {
  const auto dims = static_cast<int64_t>(input.shape.size());
  if (dim < -dims || dim >= dims) {
    RefuseShape(Str("an input that has dim ", dim, " (", name, ")"), input);
  }
  return dim < 0 ? dim + dims : dim;
}

Field Device() { return Field::Refused("device", "the job's device holds for all layers"); }

Field OwnDType() {
  return Field::DType("dtype", "type of its parameters and of what it computes; none = the job's")
      .Optional();
}

Field LayerCount(std::string name, std::string help) {
  return Field::Int(std::move(name), std::move(help)).AtLeast(1).AtMost(10'000);
}

Field Causal() {
  return Field::Bool("causal", "an element attends to itself and earlier ones only")
      .Default(false)
      .NamedOnly();
}

std::vector<ParameterSpec> Prefixed(std::string_view prefix, std::vector<ParameterSpec> specs) {
  for (ParameterSpec& spec : specs) spec.name = Str(prefix, ".", spec.name);
  return specs;
}

void Append(std::vector<ParameterSpec>& specs, std::vector<ParameterSpec> more) {
  specs.insert(specs.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

std::vector<ParameterSpec> LinearParameters(int64_t in, int64_t out, bool bias) {
  std::vector<ParameterSpec> specs = {{.name = "weight", .shape = {out, in}}};
  if (bias) specs.push_back({.name = "bias", .shape = {out}});
  return specs;
}

std::vector<ParameterSpec> AffineParameters(const Shape& shape, bool bias) {
  std::vector<ParameterSpec> specs = {{.name = "weight", .shape = shape}};
  if (bias) specs.push_back({.name = "bias", .shape = shape});
  return specs;
}

std::vector<ParameterSpec> AttentionParameters(int64_t embed, bool bias) {
  std::vector<ParameterSpec> specs = {{.name = "in_proj_weight", .shape = {3 * embed, embed}}};
  if (bias) specs.push_back({.name = "in_proj_bias", .shape = {3 * embed}});
  Append(specs, Prefixed("out_proj", LinearParameters(embed, embed, bias)));
  return specs;
}

void ShareAll(std::vector<ParameterSpec>& specs, Share share) {
  for (ParameterSpec& spec : specs) spec.share = share;
}

LayerType ParallelType(const LayerType& type, std::string name, std::string split, std::string help,
                       FieldTable fields) {
  LayerType parallel = {.name = std::move(name),
                        .fields = std::move(fields),
                        .help = std::move(help),
                        .shapes = type.shapes,
                        .is_loss = type.is_loss,
                        .default_split = split,
                        .stands_for = type.name};
  if (!split.empty()) parallel.splits = {std::move(split)};
  return parallel;
}

void ShareHeads(std::vector<ParameterSpec>& specs) {
  for (ParameterSpec& spec : specs) {
    if (spec.name == "out_proj.bias") continue;
    if (spec.name == "out_proj.weight") {
      spec.share = {.dim = 1};  // its inputs are the heads' outputs
    } else if (spec.name.starts_with("in_proj")) {
      spec.share = {.dim = 0, .blocks = 3};  // queries, keys and values
    } else {
      spec.share = {.dim = static_cast<int>(spec.name.starts_with("bias")) * 2};
    }
  }
}

}  // namespace strata::layers
