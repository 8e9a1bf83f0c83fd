// Losses: their infer() takes {output, target} and gives one scalar.
#include "engine/spec/layers/rules.h"

namespace strata::layers {
namespace {

using PairRule = void (*)(const LayerSpec& spec, const TensorSpec& output,
                          const TensorSpec& target);

InferFunction Pair(PairRule rule) {
  return [rule](const LayerSpec& spec, const TensorSpecs& inputs, Script*) -> TensorSpecs {
    if (inputs.size() != 2) {
      throw ShapeError(Str("expects one output and one target, got ", ToString(inputs)));
    }
    ExpectFloating(inputs[0]);
    rule(spec, inputs[0], inputs[1]);
    return {{{}, inputs[0].dtype}};
  };
}

[[noreturn]] void RefuseTarget(std::string_view expected, const TensorSpec& target) {
  throw ShapeError(Str("expects a target ", expected, ", got ", target.ToString()));
}

void ExpectSameTarget(const LayerSpec&, const TensorSpec& output, const TensorSpec& target) {
  if (target != output) RefuseTarget(output.ToString(), target);
}

void ExpectClasses(const LayerSpec& spec, const TensorSpec& output) {
  if (output.shape.size() < 2) RefuseShape("(batch, classes, ...)", output);
  const Value& weight = spec.args["weight"];
  if (weight.is_null()) return;
  const size_t count = weight.as_list().size();
  if (static_cast<int64_t>(count) != output.shape[1]) {
    RefuseShape(Str(count, " classes in dim 1, as many as weight has"), output);
  }
}

/// A class for each element: the output's shape without dim 1.
void ExpectClassTarget(const LayerSpec& spec, const TensorSpec& output, const TensorSpec& target) {
  ExpectClasses(spec, output);
  TensorSpec expected = {output.shape, DType::kInt64};
  expected.shape.erase(expected.shape.begin() + 1);
  if (target != expected) RefuseTarget(expected.ToString(), target);
}

/// Classes, or a probability for each class.
void ExpectCrossEntropyTarget(const LayerSpec& spec, const TensorSpec& output,
                              const TensorSpec& target) {
  ExpectClasses(spec, output);
  if (target != output) ExpectClassTarget(spec, output, target);
}

void ExpectLogitsTarget(const LayerSpec& spec, const TensorSpec& output, const TensorSpec& target) {
  ExpectSameTarget(spec, output, target);
  for (const char* name : {"weight", "pos_weight"}) {
    const Value& weight = spec.args[name];
    if (weight.is_null()) continue;
    const size_t count = weight.as_list().size();
    const bool fits =
        count == 1 || (!output.shape.empty() && output.shape.back() == static_cast<int64_t>(count));
    if (!fits) RefuseShape(Str("last dim ", count, ", as many as ", name, " has"), output);
  }
}

Field Weights(std::string name, std::string help) {
  return Field::Numbers(std::move(name), 0, std::move(help)).AtLeast(0).Optional();
}

/// Old names that PyTorch itself no longer wants.
Field Obsolete(std::string name) { return Field::Refused(std::move(name), "use reduction"); }

Field Reduction() {
  return Field::Choice("reduction", {"mean", "sum"}, "over the global batch").Default("mean");
}

Field IgnoreIndex() {
  return Field::Int("ignore_index", "targets of this class do not count").Default(-100);
}

LayerType Loss(std::string name, FieldTable fields, std::string help, PairRule rule) {
  return {.name = std::move(name),
          .fields = std::move(fields),
          .help = std::move(help),
          .is_loss = true,
          .infer = Pair(rule)};
}

}  // namespace

std::vector<LayerType> LossTypes() {
  const Field class_weights = Weights("weight", "a factor for each class; none = all 1");
  return {
      Loss("CrossEntropyLoss",
           {class_weights, Obsolete("size_average"), IgnoreIndex(), Obsolete("reduce"), Reduction(),
            Field::Number("label_smoothing", "share of the target spread over all classes")
                .AtLeast(0)
                .AtMost(1)
                .Default(0.0)},
           "of logits (batch, classes, ...) and classes or probabilities",
           ExpectCrossEntropyTarget),
      Loss(
          "NLLLoss",
          {class_weights, Obsolete("size_average"), IgnoreIndex(), Obsolete("reduce"), Reduction()},
          "of logarithms of probabilities (batch, classes, ...) and classes", ExpectClassTarget),
      Loss("MSELoss", {Obsolete("size_average"), Obsolete("reduce"), Reduction()},
           "squared difference", ExpectSameTarget),
      Loss("L1Loss", {Obsolete("size_average"), Obsolete("reduce"), Reduction()},
           "absolute difference", ExpectSameTarget),
      Loss("BCEWithLogitsLoss",
           {Weights("weight", "factors along the last dim; none = all 1"), Obsolete("size_average"),
            Obsolete("reduce"), Reduction(),
            Weights("pos_weight", "factors of positive targets along the last dim")},
           "cross entropy of logits and probabilities", ExpectLogitsTarget),
  };
}

}  // namespace strata::layers
