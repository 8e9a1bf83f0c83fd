// Declarations of the layers that hold layers: Sequential, Residual, and the stacks
// TransformerEncoder and TransformerDecoder.
#include <algorithm>
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
          .cost = std::move(cost),
          .is_token_wise = [](const LayerSpec& spec) {
            return std::ranges::all_of(spec.children, IsTokenWise);
          }};
}

// ---- Stacks: a layer that stands num_layers times, and perhaps a norm behind them

bool HasNorm(const LayerSpec& spec) { return spec.children.size() > 1; }

void FinishStack(LayerSpec& spec) {
  const std::string wanted = spec.type + "Layer";
  if (spec.children[0].type != wanted || spec.children.size() > 2) {
    throw ConfigError(Str("expects a ", wanted, ", and perhaps a norm behind it"));
  }
  if (SplitOf(spec.children[0]) == "sequence") {
    throw ConfigError("split = \"sequence\" does not go inside it; use strata.times");
  }
}

std::vector<ParameterSpec> StackParameters(const LayerSpec& spec) {
  std::vector<ParameterSpec> specs;
  for (int64_t i = 0; i < spec.Int("num_layers"); ++i) {
    Append(specs, Prefixed(Str("layers.", i), ParametersOf(spec.children[0])));
  }
  if (HasNorm(spec)) Append(specs, Prefixed("norm", ParametersOf(spec.children[1])));
  return specs;
}

/// All layers take the same memory and masks.
TensorSpecs InferStack(const LayerSpec& spec, const TensorSpecs& inputs, Script* script) {
  TensorSpecs outputs = InferInside({spec.children[0]}, inputs, script);
  return HasNorm(spec) ? InferInside({spec.children[1]}, outputs, script) : outputs;
}

std::vector<Traced> CostOfStack(LayerTape& tape, const LayerSpec& spec,
                                const std::vector<Traced>& inputs, const TensorSpecs& outputs) {
  std::vector<Traced> x = inputs;
  for (int64_t i = 0; i < spec.Int("num_layers"); ++i) {
    x[0] = TraceLayer(tape, spec.children[0], x, outputs)[0];
  }
  if (!HasNorm(spec)) return {x[0]};
  return TraceLayer(tape, spec.children[1], {x[0]}, outputs);
}

LayerType Stack(std::string name, std::string shapes) {
  LayerType type = Container(std::move(name),
                             "num_layers copies of its layer, all with the same first values, and "
                             "the norm that may follow it; strata.times can be cut",
                             std::move(shapes), InferStack, CostOfStack);
  type.fields = {LayerCount("num_layers", "how often the layer stands").NamedOnly()};
  type.finish = FinishStack;
  type.parameters = StackParameters;
  type.repeats = [](const LayerSpec& spec) { return spec.Int("num_layers"); };
  return type;
}

}  // namespace

std::vector<LayerType> ContainerTypes() {
  return {
      Stack("TransformerEncoder", "what its layer takes -> (L, N, d_model)"),
      Stack("TransformerDecoder", "what its layer takes -> (L, N, d_model)"),
      Container("Sequential", "its layers one after the other; one layer for the partition",
                "what its first layer takes -> what its last gives", InferSequence, CostOfSequence),
      Container("Residual", "x + body(x); the body's output has exactly the shape and dtype of x",
                "(...) -> (...)", InferResidual, CostOfResidual),
  };
}

}  // namespace strata::layers
