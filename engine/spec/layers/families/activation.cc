// Declarations of the activations: ReLU, GELU, SiLU, Tanh, Sigmoid, Softmax and LeakyReLU.
#include "engine/spec/layers/rules.h"

namespace strata::layers {
namespace {

TensorSpec InferFloating(const LayerSpec&, const TensorSpec& input) {
  ExpectFloating(input);
  return input;
}

TensorSpec InferSoftmax(const LayerSpec& spec, const TensorSpec& input) {
  ExpectFloating(input);
  if (!spec.args["dim"].is_null()) WrapDim(spec.args["dim"].as_int(), input, "dim");
  return input;
}

Field InPlace() { return Field::Bool("inplace", "may overwrite its input").Default(false); }

LayerType Activation(std::string name, FieldTable fields, std::string help,
                     UnaryRule rule = InferFloating) {
  return {.name = std::move(name),
          .fields = std::move(fields),
          .help = std::move(help),
          .shapes = "(...) -> (...)",
          .elementwise = rule != InferSoftmax,
          .infer = Unary(rule)};
}

}  // namespace

std::vector<LayerType> ActivationTypes() {
  return {
      Activation("ReLU", {InPlace()}, "max(x, 0)"),
      Activation(
          "GELU",
          {Field::Choice("approximate", {"none", "tanh"}, "how the error function is computed")
               .Default("none")},
          "x times the normal distribution's share below x"),
      Activation("SiLU", {InPlace()}, "x times sigmoid(x)"),
      Activation("Tanh", {}, "hyperbolic tangent"),
      Activation("Sigmoid", {}, "1 / (1 + exp(-x))"),
      Activation(
          "Softmax",
          {Field::Int("dim", "the dim that sums to 1; none: 0 for 1 or 3 dims, else 1").Optional()},
          "exp(x) divided by its sum", InferSoftmax),
      Activation("LeakyReLU",
                 {Field::Number("negative_slope", "factor below 0").Default(0.01), InPlace()},
                 "max(x, 0) + negative_slope min(x, 0)"),
  };
}

}  // namespace strata::layers
