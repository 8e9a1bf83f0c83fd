// Declarations of Sequential and Residual, which hold layers.
#include "engine/spec/layers/rules.h"

namespace strata::layers {
namespace {

std::vector<ParameterSpec> Parameters(const LayerSpec& spec) {
  std::vector<ParameterSpec> specs;
  for (size_t i = 0; i < spec.children.size(); ++i) {
    const LayerSpec& child = spec.children[i];
    Append(specs, Prefixed(LayerPath(child, static_cast<int>(i)), ParametersOf(child)));
  }
  return specs;
}

TensorSpecs InferSequence(const LayerSpec& spec, const TensorSpecs& inputs, Script* script) {
  return spec.children.empty() ? inputs : InferInside(spec.children, inputs, script);
}

TensorSpecs InferResidual(const LayerSpec& spec, const TensorSpecs& inputs, Script* script) {
  TensorSpecs outputs = InferSequence(spec, inputs, script);
  if (outputs != inputs) {
    throw ShapeError(
        Str("expects its body to keep ", ToString(inputs), ", got ", ToString(outputs)));
  }
  return outputs;
}

}  // namespace

std::vector<LayerType> ContainerTypes() {
  return {
      {.name = "Sequential",
       .fields = {},
       .help = "its layers one after the other; one layer for the partition",
       .shapes = "what its first layer takes -> what its last gives",
       .holds_layers = true,
       .parameters = Parameters,
       .infer = InferSequence},
      {.name = "Residual",
       .fields = {},
       .help = "x + body(x); the body's output has exactly the shape and dtype of x",
       .shapes = "(...) -> (...)",
       .holds_layers = true,
       .parameters = Parameters,
       .infer = InferResidual},
  };
}

}  // namespace strata::layers
