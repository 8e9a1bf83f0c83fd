// Declarations of the layers that hold layers: Sequential, Residual, their parts, and the stacks
// TransformerEncoder and TransformerDecoder.
#include <algorithm>
#include <utility>

#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"

namespace strata::layers {
namespace {

std::vector<ParameterSpec> Parameters(const LayerSpec& spec) {
  const ChildRange own = RangeOf(spec);
  std::vector<ParameterSpec> specs;
  for (int i = own.begin; i < own.end; ++i) {
    const LayerSpec& child = spec.children[static_cast<size_t>(i)];
    Append(specs, Prefixed(LayerPath(child, i), ParametersOf(child)));
  }
  return specs;
}

void ExpectKept(const TensorSpecs& inputs, const TensorSpecs& outputs) {
  if (outputs == inputs) return;
  throw ShapeError(Str("expects its body to keep ", ToString(inputs), ", got ", ToString(outputs)));
}

TensorSpecs InferResidual(const LayerSpec& spec, const TensorSpecs& inputs, Script* script) {
  const TensorSpecs outputs = InferInside(spec, inputs, script);
  ExpectKept(inputs, outputs);
  return outputs;
}

std::vector<Traced> CostOfSequence(LayerTape& tape, const LayerSpec& spec,
                                   const std::vector<Traced>& inputs, const TensorSpecs&) {
  std::vector<Traced> x = inputs;
  for (const LayerSpec& child : OwnChildren(spec)) {
    x = TraceLayer(tape, child, x, InferLayer(child, SpecsOf(x), tape.script()));
  }
  return x;
}

/// Records the cost of adding x to `outputs`, the body's outputs. Returns the sums.
std::vector<Traced> Added(LayerTape& tape, std::vector<Traced> outputs) {
  for (Traced& output : outputs) {
    output = tape.Fresh(output);
    tape.Touch(3 * output.bytes(), output.bytes());
  }
  return outputs;
}

std::vector<Traced> CostOfResidual(LayerTape& tape, const LayerSpec& spec,
                                   const std::vector<Traced>& inputs, const TensorSpecs& specs) {
  return Added(tape, CostOfSequence(tape, spec, inputs, specs));
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
            return std::ranges::all_of(OwnChildren(spec), IsTokenWise);
          }};
}

LayerType Sequential() {
  return Container("Sequential", "its layers one after the other",
                   "what its first layer takes -> what its last gives", InferInside,
                   CostOfSequence);
}

LayerType Residual() {
  return Container("Residual",
                   "x + body(x); the body's output has exactly the shape and dtype of x",
                   "(...) -> (...)", InferResidual, CostOfResidual);
}

// ---- Parts (parts.h)

/// Splits the inputs of a part of a Residual into `x`, the input of the whole Residual, and `body`,
/// what the body's layers have made of it so far (one tensor). For the first part both are the
/// inputs.
template <class T>
struct ResidualTensors {
  ResidualTensors(const LayerSpec& spec, const std::vector<T>& inputs)
      : is_last(RangeOf(spec).end == std::ssize(spec.children)), x(inputs), body(inputs) {
    if (RangeOf(spec).begin == 0) return;
    x.pop_back();
    body = {inputs.back()};
  }
  /// The outputs of a part that is not the last: x, followed by the body's new outputs.
  std::vector<T> With(const std::vector<T>& outputs) && {
    x.insert(x.end(), outputs.begin(), outputs.end());
    return std::move(x);
  }

  const bool is_last;
  std::vector<T> x, body;
};

TensorSpecs InferResidualPart(const LayerSpec& spec, const TensorSpecs& inputs, Script* script) {
  ResidualTensors<TensorSpec> tensors(spec, inputs);
  const TensorSpecs outputs = InferInside(spec, tensors.body, script);
  if (!tensors.is_last) return std::move(tensors).With(outputs);
  ExpectKept(tensors.x, outputs);
  return outputs;
}

std::vector<Traced> CostOfResidualPart(LayerTape& tape, const LayerSpec& spec,
                                       const std::vector<Traced>& inputs,
                                       const TensorSpecs& specs) {
  ResidualTensors<Traced> tensors(spec, inputs);
  for (const Traced& x : tensors.x) tape.Carry(x);
  const std::vector<Traced> outputs = CostOfSequence(tape, spec, tensors.body, specs);
  return tensors.is_last ? Added(tape, outputs) : std::move(tensors).With(outputs);
}

LayerType Part(LayerType type) {
  type.help = Str("a part of ", type.name);
  type.library = "";
  type.name += ".part";
  return type;
}

// ---- Stacks: num_layers copies of a layer, and a norm after them if there is one

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
                             std::move(shapes), InferInside, CostOfStack);
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
      Sequential(),
      Residual(),
  };
}

std::vector<LayerType> ContainerParts() {
  LayerType residual = Part(Residual());
  residual.infer = InferResidualPart;
  residual.cost = CostOfResidualPart;
  return {Part(Sequential()), std::move(residual)};
}

}  // namespace strata::layers
