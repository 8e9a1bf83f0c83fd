// Declarations of the losses. Their infer() takes {output, target} and gives one scalar. It accepts
// the same shapes as engine/layers/losses.cc. CheckLoss() adds to an error what the loss got.
#include <cstddef>
#include <optional>

#include "engine/spec/layers/costs/cost_rules.h"
#include "engine/spec/layers/rules.h"

namespace strata::layers {
namespace {

using PairRule = void (*)(const LayerSpec& spec, const TensorSpec& output,
                          const TensorSpec& target);

InferFunction Pair(PairRule rule) {
  return [rule](const LayerSpec& spec, const TensorSpecs& inputs, Script*) -> TensorSpecs {
    if (inputs.size() != 2) {
      throw ShapeError("expects one output and one target");
    }
    ExpectFloating(inputs[0]);
    rule(spec, inputs[0], inputs[1]);
    return {{{}, inputs[0].dtype}};
  };
}

/// For losses that compare element by element. Shapes must be equal, since nothing is broadcast.
/// The dtypes may differ, since the target is converted to the output's dtype.
void ExpectSameShape(const LayerSpec&, const TensorSpec& output, const TensorSpec& target) {
  if (target.shape == output.shape) return;
  throw ShapeError(Str("expects a target in the output's shape ", FormatShape(output.shape),
                       "; nothing is broadcast"));
}

Shape Without(Shape shape, size_t dim) {
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim));
  return shape;
}

bool AreLabels(const TensorSpec& target) {
  return !IsFloating(target.dtype) && target.dtype != DType::kBool;
}

/// The dim of the classes, which labels do not have: dim 1, as in PyTorch, if that fits, else the
/// last dim. None when neither fits.
std::optional<size_t> ClassDim(const TensorSpec& output, const TensorSpec& labels) {
  for (const size_t dim : {size_t{1}, output.shape.size() - 1}) {
    if (labels.shape == Without(output.shape, dim)) return dim;
  }
  return std::nullopt;
}

/// Throws ShapeError with the labels' shapes that fit the output. `others` says what else the loss
/// takes.
[[noreturn]] void RefuseLabels(const TensorSpec& output, std::string_view others) {
  const std::string first = FormatShape(Without(output.shape, 1));
  const std::string last = FormatShape(Without(output.shape, output.shape.size() - 1));
  throw ShapeError(Str("expects integer labels ", first,
                       first == last ? "" : Str(" or, with the classes in the last dim, ", last),
                       others));
}

void ExpectWeightsOf(const LayerSpec& spec, const TensorSpec& output, size_t class_dim) {
  const Value& weight = spec.args["weight"];
  if (weight.is_null()) return;
  const auto count = static_cast<int64_t>(weight.as_list().size());
  if (count != output.shape[class_dim]) {
    RefuseShape(Str(count, " classes in dim ", class_dim, ", as many as weight has"), output);
  }
}

void ExpectClassDim(const TensorSpec& output) {
  if (output.shape.size() < 2) RefuseShape("(batch, classes, ...)", output);
}

void ExpectLabels(const LayerSpec& spec, const TensorSpec& output, const TensorSpec& target,
                  std::string_view others = "") {
  const std::optional<size_t> dim =
      AreLabels(target) ? ClassDim(output, target) : std::optional<size_t>();
  if (!dim) RefuseLabels(output, others);
  ExpectWeightsOf(spec, output, *dim);
}

void ExpectNllTarget(const LayerSpec& spec, const TensorSpec& output, const TensorSpec& target) {
  ExpectClassDim(output);
  ExpectLabels(spec, output, target);
}

/// The target is labels, or a probability for each class. The classes of the latter are in dim 1.
void ExpectCrossEntropyTarget(const LayerSpec& spec, const TensorSpec& output,
                              const TensorSpec& target) {
  ExpectClassDim(output);
  if (!IsFloating(target.dtype) || target.shape != output.shape) {
    ExpectLabels(spec, output, target, Str(", or probabilities ", FormatShape(output.shape)));
    return;
  }
  const int64_t ignored = spec.Int("ignore_index");
  if (ignored >= 0) {
    throw ShapeError(Str(
        "expects integer labels, not probabilities, since ignore_index = ", ignored, " is one"));
  }
  ExpectWeightsOf(spec, output, 1);
}

void ExpectLogitsTarget(const LayerSpec& spec, const TensorSpec& output, const TensorSpec& target) {
  ExpectSameShape(spec, output, target);
  for (const char* name : {"weight", "pos_weight"}) {
    const Value& weight = spec.args[name];
    if (weight.is_null()) continue;
    const auto count = static_cast<int64_t>(weight.as_list().size());
    const bool fits = !output.shape.empty() && (count == 1 || output.shape.back() == count);
    if (!fits) RefuseShape(Str("last dim ", count, ", as many as ", name, " has"), output);
  }
}

Field Weights(std::string name, std::string help) {
  return Field::Numbers(std::move(name), 0, std::move(help)).AtLeast(0).Optional();
}

/// An argument that PyTorch has declared obsolete.
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
          .shapes = rule == ExpectCrossEntropyTarget || rule == ExpectNllTarget
                        ? "(N, C, ...) and (N, ...) of classes -> ()"
                        : "(...) and (...) -> ()",
          .is_loss = true,
          .infer = Pair(rule),
          .cost = LossCost(/*keeps_input=*/rule != ExpectCrossEntropyTarget)};
}

}  // namespace

std::vector<LayerType> LossTypes() {
  const Field class_weights = Weights("weight", "a factor for each class; none = all 1");
  const LayerType cross_entropy = Loss(
      "CrossEntropyLoss",
      {class_weights, Obsolete("size_average"), IgnoreIndex(), Obsolete("reduce"), Reduction(),
       Field::Number("label_smoothing", "share of the target spread over all classes")
           .AtLeast(0)
           .AtMost(1)
           .Default(0.0)},
      "of logits (batch, classes, ...) and classes or probabilities", ExpectCrossEntropyTarget);
  const std::string whole = "it needs whole logits: use CrossEntropyLoss, which gathers them";
  return {
      cross_entropy,
      ParallelType(
          cross_entropy, "ParallelCrossEntropyLoss", {},
          "a CrossEntropyLoss of logits of which each rank of the model axis may have some "
          "classes",
          {Field::Refused("weight", whole), Obsolete("size_average"), IgnoreIndex(),
           Obsolete("reduce"), Reduction(), Field::Refused("label_smoothing", whole)}),
      Loss(
          "NLLLoss",
          {class_weights, Obsolete("size_average"), IgnoreIndex(), Obsolete("reduce"), Reduction()},
          "of logarithms of probabilities (batch, classes, ...) and classes", ExpectNllTarget),
      Loss("MSELoss", {Obsolete("size_average"), Obsolete("reduce"), Reduction()},
           "squared difference", ExpectSameShape),
      Loss("L1Loss", {Obsolete("size_average"), Obsolete("reduce"), Reduction()},
           "absolute difference", ExpectSameShape),
      Loss("BCEWithLogitsLoss",
           {Weights("weight", "factors along the last dim; none = all 1"), Obsolete("size_average"),
            Obsolete("reduce"), Reduction(),
            Weights("pos_weight", "factors of positive targets along the last dim")},
           "cross entropy of logits and probabilities", ExpectLogitsTarget),
  };
}

}  // namespace strata::layers
