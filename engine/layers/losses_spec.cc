// Declarations of the losses. Their infer() takes the outputs followed by the targets, mostly one
// of each, and returns one scalar. It accepts the same shapes as losses.cc. CheckLoss() adds to an
// error which shapes the loss got.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/layers/cost_rules.h"
#include "engine/layers/rules.h"
#include "engine/layers/targets.h"

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

/// The dim of the output that holds the classes. Throws ShapeError if two dims fit, or if none
/// does. In the latter case the message names the shapes of labels that would fit, followed by
/// `others`, the other targets that the loss takes.
size_t ClassDim(const LayerSpec& spec, const TensorSpec& output, const TensorSpec& target,
                std::string_view others) {
  const std::optional<int64_t> given = GivenClassDim(spec);
  const bool are_probabilities = !others.empty() && IsFloating(target.dtype);
  std::vector<int> fitting;
  if (are_probabilities || AreLabels(target)) {
    fitting = FittingClassDims(output.shape, target.shape, !are_probabilities, given);
  }
  if (fitting.size() == 1) return static_cast<size_t>(fitting[0]);
  const std::string shape = FormatShape(output.shape);
  if (!fitting.empty()) {
    throw ShapeError(SeveralClassDims(output.shape, FormatShape(target.shape), fitting, spec.type));
  }
  const auto rank = static_cast<int64_t>(output.shape.size());
  if (given && (*given == 0 || *given >= rank || *given <= -rank)) {
    throw ShapeError(Str("class_dim = ", *given, " is no dim of classes of the output ", shape,
                         ": expects 1 to ", rank - 1, ", or -1 to ", 1 - rank));
  }
  std::vector<std::string> labels;
  for (const int64_t dim :
       given ? std::vector<int64_t>{(*given + rank) % rank} : std::vector<int64_t>{1, rank - 1}) {
    labels.push_back(FormatShape(Without(output.shape, static_cast<size_t>(dim))));
  }
  throw ShapeError(Str("expects integer labels ", labels.front(),
                       given ? Str(" (the classes are in dim ", *given, ")") : "",
                       labels.front() == labels.back()
                           ? ""
                           : Str(" or, with the classes in the last dim, ", labels.back()),
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

void ExpectNllTarget(const LayerSpec& spec, const TensorSpec& output, const TensorSpec& target) {
  ExpectClassDim(output);
  ExpectWeightsOf(spec, output, ClassDim(spec, output, target, ""));
}

/// The target is labels, or a probability for each class.
void ExpectCrossEntropyTarget(const LayerSpec& spec, const TensorSpec& output,
                              const TensorSpec& target) {
  ExpectClassDim(output);
  const std::string others = Str(", or probabilities ", FormatShape(output.shape));
  const size_t dim = ClassDim(spec, output, target, others);
  const int64_t ignored = spec.Int("ignore_index");
  if (IsFloating(target.dtype) && ignored >= 0) {
    throw ShapeError(Str(
        "expects integer labels, not probabilities, since ignore_index = ", ignored, " is one"));
  }
  ExpectWeightsOf(spec, output, dim);
}

void ExpectWeightedTarget(const LayerSpec& spec, const TensorSpec& output,
                          const TensorSpec& target) {
  ExpectSameShape(spec, output, target);
  for (const char* name : {"weight", "pos_weight"}) {
    if (!spec.args.Has(name) || spec.args[name].is_null()) continue;
    const Value& weight = spec.args[name];
    const auto count = static_cast<int64_t>(weight.as_list().size());
    const bool fits = !output.shape.empty() && (count == 1 || output.shape.back() == count);
    if (!fits) RefuseShape(Str("last dim ", count, ", as many as ", name, " has"), output);
  }
}

// ---- Losses of several outputs, or several targets

/// An infer() for losses of several outputs or targets. `least` is the number of tensors that the
/// loss needs, and `tensors` names them in the message. Up to `more` further tensors are accepted
/// and ignored.
InferFunction Several(size_t least, size_t more, const char* tensors,
                      void (*rule)(const TensorSpecs& inputs)) {
  return [=](const LayerSpec&, const TensorSpecs& inputs, Script*) -> TensorSpecs {
    if (inputs.size() < least || inputs.size() > least + more) {
      throw ShapeError(Str("expects ", tensors));
    }
    ExpectFloating(inputs[0]);
    rule(inputs);
    return {{{}, inputs[0].dtype}};
  };
}

/// The tensors are means, variances and targets. The variances have the shape of the means, the
/// same without the last dim, or size 1 in one dim, and are then shared along that dim.
void ExpectGaussian(const TensorSpecs& inputs) {
  const TensorSpec &mean = inputs[0], &variance = inputs[1], &target = inputs[2];
  const auto refuse = [](const char* what, const Shape& shape) {
    throw ShapeError(Str("expects ", what, " in the means' shape ", FormatShape(shape)));
  };
  if (target.shape != mean.shape) refuse("a target", mean.shape);
  if (variance.shape == mean.shape) return;
  if (!mean.shape.empty() && variance.shape == Without(mean.shape, mean.shape.size() - 1)) return;
  int shared = 0;
  bool fits = variance.shape.size() == mean.shape.size();
  for (size_t d = 0; fits && d < mean.shape.size(); ++d) {
    if (variance.shape[d] == mean.shape[d]) continue;
    fits = variance.shape[d] == 1 && ++shared == 1;
  }
  if (!fits) refuse("variances (positive), as the second output,", mean.shape);
}

void ExpectCtc(const TensorSpecs& inputs) {
  const TensorSpec& output = inputs[0];
  if (output.shape.size() != 3)
    RefuseShape("logarithms of probabilities (time, batch, classes)", output);
  const int64_t batch = output.shape[1];
  const TensorSpec& labels = inputs[1];
  const bool fits =
      labels.shape.size() == 1 || (labels.shape.size() == 2 && labels.shape[0] == batch);
  for (size_t i = 1; i < inputs.size(); ++i) {
    const bool is_batch = i == 1 ? fits : inputs[i].shape == Shape{batch};
    if (is_batch && AreLabels(inputs[i])) continue;
    throw ShapeError(Str("expects integer labels (", batch, ", length), lengths of the outputs (",
                         batch, ",) and of the labels (", batch, ",)"));
  }
}

void ExpectTriplet(const TensorSpecs& inputs) {
  for (size_t i = 1; i < 3; ++i) {
    if (inputs[i].shape == inputs[0].shape && !inputs[i].shape.empty()) continue;
    throw ShapeError("expects anchor, positive and negative in one shape (..., features)");
  }
}

void ExpectEmbeddings(const TensorSpecs& inputs) {
  const Shape& shape = inputs[0].shape;
  const bool fits =
      shape.size() == 2 && inputs[1].shape == shape && inputs[2].shape == Without(shape, 1);
  if (!fits)
    throw ShapeError("expects two outputs (batch, features) and a target (batch,) of 1 and -1");
}

Field Weights(std::string name, std::string help) {
  return Field::Numbers(std::move(name), 0, std::move(help)).AtLeast(0).Optional();
}

/// An argument that PyTorch has declared obsolete.
Field Obsolete(std::string name) { return Field::Refused(std::move(name), "use reduction"); }

Field Reduction(std::vector<std::string> choices = {"mean", "sum"}) {
  return Field::Choice("reduction", std::move(choices), "over the global batch").Default("mean");
}

Field IgnoreIndex() {
  return Field::Int("ignore_index", "targets of this class do not count").Default(-100);
}

Field ClassDimField() {
  return Field::Int("class_dim",
                    "the dim of the output with the classes: 1 as in PyTorch, -1 for the last one; "
                    "none = the one that labels do not have")
      .Optional()
      .NamedOnly();
}

Field Flag(const char* name, bool value, const char* help) {
  return Field::Bool(name, help).Default(value);
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

/// A loss of several outputs or targets.
LayerType LossOf(std::string name, FieldTable fields, std::string help, std::string shapes,
                 InferFunction infer) {
  return {.name = std::move(name),
          .fields = std::move(fields),
          .help = std::move(help),
          .shapes = std::move(shapes),
          .is_loss = true,
          .infer = std::move(infer),
          .cost = LossCost()};
}

std::vector<LayerType> LossesOfSeveral() {
  return {
      LossOf(
          "GaussianNLLLoss",
          {Flag("full", false, "with the constant term").NamedOnly(),
           Number("eps", 1e-6, "the least variance").Above(0).NamedOnly(), Reduction().NamedOnly()},
          "of means and variances, two outputs, and values", "(...) and (...) and (...) -> ()",
          Several(3, 0, "two outputs, means and variances, and one target", ExpectGaussian)),
      LossOf("CTCLoss",
             {Field::Int("blank", "the class of the blank").AtLeast(0).Default(0), Reduction(),
              Flag("zero_infinity", false, "a sample that has no alignment does not count")},
             "of logarithms of probabilities (time, batch, classes), and three targets: labels, "
             "lengths of the outputs, lengths of the labels",
             "(T, N, C) and (N, S) and (N) and (N) -> ()",
             Several(4, 0,
                     "one output and three targets: labels, lengths of the outputs, lengths of the "
                     "labels",
                     ExpectCtc)),
      LossOf("TripletMarginLoss",
             {Number("margin", 1, "how much farther the negative shall be").Above(0),
              Number("p", 2, "which norm").Above(0),
              Number("eps", 1e-6, "added to differences").AtLeast(0),
              Flag("swap", false, "the negative is compared with the nearer of the other two"),
              Obsolete("size_average"), Obsolete("reduce"), Reduction()},
             "of anchor, positive and negative, three outputs; it needs no target",
             "(..., D) and (..., D) and (..., D) -> ()",
             Several(3, 1, "three outputs: anchor, positive and negative", ExpectTriplet)),
      LossOf("CosineEmbeddingLoss",
             {Number("margin", 0, "the largest cosine of two that differ"),
              Obsolete("size_average"), Obsolete("reduce"), Reduction()},
             "of two outputs that are alike (target 1) or not (-1)",
             "(N, D) and (N, D) and (N) -> ()",
             Several(3, 0, "two outputs and one target", ExpectEmbeddings)),
  };
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
           .Default(0.0),
       ClassDimField()},
      "of logits (batch, classes, ...) and classes or probabilities", ExpectCrossEntropyTarget);
  const auto reductions = [](std::vector<std::string> choices = {"mean", "sum"}) {
    return FieldTable{Obsolete("size_average"), Obsolete("reduce"), Reduction(choices)};
  };
  const auto with = [](FieldTable fields, const FieldTable& more) {
    fields.insert(fields.end(), more.begin(), more.end());
    return fields;
  };
  const Field last_weights = Weights("weight", "factors along the last dim; none = all 1");
  const std::string whole = "it needs whole logits: use CrossEntropyLoss, which gathers them";
  std::vector<LayerType> types = {
      cross_entropy,
      ParallelType(
          cross_entropy, "ParallelCrossEntropyLoss", {},
          "a CrossEntropyLoss of logits of which each rank of the model axis may have some "
          "classes",
          {Field::Refused("weight", whole), Obsolete("size_average"), IgnoreIndex(),
           Obsolete("reduce"), Reduction(), Field::Refused("label_smoothing", whole),
           ClassDimField()}),
      Loss("NLLLoss",
           {class_weights, Obsolete("size_average"), IgnoreIndex(), Obsolete("reduce"), Reduction(),
            ClassDimField()},
           "of logarithms of probabilities (batch, classes, ...) and classes", ExpectNllTarget),
      Loss("MSELoss", reductions(), "squared difference", ExpectSameShape),
      Loss("L1Loss", reductions(), "absolute difference", ExpectSameShape),
      Loss("SmoothL1Loss",
           with(reductions(), {Number("beta", 1, "from this difference on linear").AtLeast(0)}),
           "squared difference / (2 beta) below beta, else absolute difference - beta / 2",
           ExpectSameShape),
      Loss("HuberLoss",
           {Reduction(), Number("delta", 1, "from this difference on linear").Above(0)},
           "squared difference / 2 below delta, else delta (absolute difference - delta / 2)",
           ExpectSameShape),
      Loss("BCELoss", with({last_weights}, reductions()), "cross entropy of two probabilities",
           ExpectWeightedTarget),
      Loss("BCEWithLogitsLoss",
           with(with({last_weights}, reductions()),
                {Weights("pos_weight", "factors of positive targets along the last dim")}),
           "cross entropy of logits and probabilities", ExpectWeightedTarget),
      Loss("KLDivLoss",
           with(reductions({"mean", "sum", "batchmean"}),
                {Flag("log_target", false, "the target is logarithms too")}),
           "divergence of logarithms of probabilities from probabilities", ExpectSameShape),
      Loss("PoissonNLLLoss",
           {Flag("log_input", true, "the output is logarithms of rates"),
            Flag("full", false, "with Stirling's approximation of the target's term"),
            Obsolete("size_average"),
            Number("eps", 1e-8, "keeps from the logarithm of 0 where log_input is false").Above(0),
            Obsolete("reduce"), Reduction()},
           "of rates and counts", ExpectSameShape),
  };
  for (LayerType& type : LossesOfSeveral()) types.push_back(std::move(type));
  return types;
}

}  // namespace strata::layers

namespace strata {

bool IsOfClasses(const LayerSpec& loss) {
  return !loss.scripted && (loss.type == "CrossEntropyLoss" || loss.type == "NLLLoss");
}

std::optional<double> ClassThreshold(const LayerSpec& loss) {
  if (loss.scripted) return std::nullopt;
  if (loss.type == "BCELoss") return 0.5;
  return loss.type == "BCEWithLogitsLoss" ? std::optional(0.0) : std::nullopt;
}

bool AreLabels(const TensorSpec& target) {
  return !IsFloating(target.dtype) && target.dtype != DType::kBool;
}

std::optional<int64_t> GivenClassDim(const LayerSpec& loss) {
  const Value* given = loss.args.Find("class_dim");
  if (given && !given->is_null()) return given->as_int();
  return loss.class_dim;
}

std::vector<int> FittingClassDims(std::span<const int64_t> output, std::span<const int64_t> target,
                                  bool are_labels, std::optional<int64_t> given) {
  const auto rank = static_cast<int>(output.size());
  std::vector<int> fitting;
  for (int dim = 1; dim < rank; ++dim) {
    if (given && *given != dim && *given != dim - rank) continue;
    std::vector<int64_t> expected(output.begin(), output.end());
    if (are_labels) expected.erase(expected.begin() + dim);
    if (std::ranges::equal(target, expected)) fitting.push_back(dim);
  }
  const bool is_between = fitting.size() == 1 && fitting[0] != 1 && fitting[0] != rank - 1;
  if (is_between && !given) fitting.clear();
  return fitting;
}

std::string SeveralClassDims(std::span<const int64_t> output, const std::string& target,
                             const std::vector<int>& fitting, const std::string& loss) {
  const int last = static_cast<int>(output.size()) - 1;
  std::vector<std::string> dims, lines;
  for (const int dim : fitting) {
    dims.push_back(dim == 1      ? "dim 1, as in PyTorch,"
                   : dim == last ? "its last dim, with a row of scores for each label,"
                                 : Str("dim ", dim));
    const std::string said = Str("{class_dim = ", dim == last ? -1 : dim, "}");
    lines.push_back(loss.empty() ? Str("eval = ", said) : Str("nn.", loss, said));
  }
  return Str("the output ", FormatShape(output), " may have the classes in ", Join(dims, " or in "),
             " and the target ", target, " fits each of these; say which: ", Join(lines, " or "));
}

}  // namespace strata
