#include "engine/spec/layers/rules.h"

namespace strata::layers {
namespace {

/// Column: each rank has some of the outputs; row: some of the inputs, and the whole bias.
std::vector<ParameterSpec> Parameters(const LayerSpec& spec) {
  std::vector<ParameterSpec> specs =
      LinearParameters(spec.args["in_features"].as_int(), spec.args["out_features"].as_int(),
                       spec.args["bias"].as_bool());
  const std::string split = SplitOf(spec);
  if (split == "row") specs[0].share = {.dim = 1};
  if (split == "column") ShareAll(specs, {.dim = 0});
  return specs;
}

TensorSpec Infer(const LayerSpec& spec, const TensorSpec& input) {
  const int64_t in = spec.args["in_features"].as_int();
  if (input.shape.empty() || input.shape.back() != in) RefuseShape(Str("last dim ", in), input);
  ExpectParameterDType(input);
  TensorSpec output = input;
  output.shape.back() = spec.args["out_features"].as_int();
  return output;
}

}  // namespace

std::vector<LayerType> LinearTypes() {
  return {{
      .name = "Linear",
      .fields = {Field::Int("in_features", "size of the last dim of the input").AtLeast(1),
                 Field::Int("out_features", "size of the last dim of the output").AtLeast(1),
                 Field::Bool("bias", "adds a learned vector").Default(true), Device(),
                 ParameterDType()},
      .help = "x W^T + b over the last dim",
      .splits = {"column", "row"},
      .parameters = Parameters,
      .infer = Unary(Infer),
  }};
}

}  // namespace strata::layers
