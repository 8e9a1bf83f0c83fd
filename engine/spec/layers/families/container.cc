// Declarations of Sequential and Residual, which hold layers.
#include <utility>

#include "engine/spec/layers/costs/cost_rules.h"
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

std::vector<Traced> CostOfSequence(LayerTape& tape, const LayerSpec& spec,
                                   const std::vector<Traced>& inputs, const TensorSpecs&) {
  std::vector<Traced> x = inputs;
  for (const LayerSpec& child : spec.children) {
    x = TraceLayer(tape, child, x, InferLayer(child, SpecsOf(x), tape.script()));
  }
  return x;
}

std::vector<Traced> CostOfResidual(LayerTape& tape, const LayerSpec& spec,
                                   const std::vector<Traced>& inputs, const TensorSpecs& specs) {
  std::vector<Traced> outputs = CostOfSequence(tape, spec, inputs, specs);
  for (Traced& output : outputs) {
    output = tape.Fresh(output);
    tape.Touch(3 * output.bytes(), output.bytes());
  }
  return outputs;
}

LayerType Container(std::string name, std::string help, std::string shapes, InferFunction infer,
                    CostRule cost) {
  return {.name = std::move(name),
          .fields = {},
          .help = std::move(help),
          .shapes = std::move(shapes),
          .holds_layers = true,
          .parameters = Parameters,
          .infer = std::move(infer),
          .cost = std::move(cost)};
}

}  // namespace

std::vector<LayerType> ContainerTypes() {
  return {
      Container("Sequential", "its layers one after the other; one layer for the partition",
                "what its first layer takes -> what its last gives", InferSequence, CostOfSequence),
      Container("Residual", "x + body(x); the body's output has exactly the shape and dtype of x",
                "(...) -> (...)", InferResidual, CostOfResidual),
  };
}

}  // namespace strata::layers
