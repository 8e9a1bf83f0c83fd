// The losses. Each returns the sum over its items and the weight by which the engine divides
// (LossValue), and PyTorch's mean is their quotient over the global batch. Class losses find the
// dim of the classes by the shapes, and compute it in parts if each rank of the model axis has some
// classes. Element-wise losses are a table of ATen calls.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/losses.h"

#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cosine_embedding_loss.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ctc_loss.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/huber_loss.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/nll_loss_nd.h>
#include <ATen/ops/poisson_nll_loss.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/triplet_margin_loss.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <numbers>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/axis/crossing.h"
#include "engine/layers/axis/shared_cross_entropy.h"
#include "engine/layers/families.h"
#include "engine/layers/targets.h"

namespace strata {
namespace {

std::string ShapeOf(const at::Tensor& t) {
  return Str(c10::toString(t.scalar_type()), " ", FormatShape(t.sizes()));
}

bool AreLabels(const at::Tensor& target) {
  return c10::isIntegralType(target.scalar_type(), false);
}

/// Converts output and labels to the form that PyTorch's losses take: classes in dim 1, labels
/// int64. If the last dim holds the classes, all other dims are merged into one.
std::pair<at::Tensor, at::Tensor> PyTorchForm(const at::Tensor& output, const at::Tensor& target,
                                              int64_t class_dim) {
  const at::Tensor labels = target.to(at::kLong);
  if (class_dim == 1) return {output, labels};
  if (class_dim < output.dim() - 1) return {output.movedim(class_dim, 1), labels};
  return {output.reshape({-1, output.size(-1)}), labels.reshape({-1})};
}

using OptionalTensor = std::optional<at::Tensor>;

/// The weights that a loss got as an argument: a list of numbers, or none.
class Weights {
 public:
  explicit Weights(const Value& list) : list_(list) {}
  /// The list as a tensor with the device and dtype of `like`; none without a list. The tensor is
  /// kept for the next call.
  OptionalTensor Like(const at::Tensor& like) {
    if (list_.is_null()) return std::nullopt;
    if (tensor_.defined() && tensor_.device() == like.device() &&
        tensor_.scalar_type() == like.scalar_type()) {
      return tensor_;
    }
    std::vector<double> numbers;
    for (const Value& number : list_.as_list()) numbers.push_back(number.as_double());
    const auto size = static_cast<int64_t>(numbers.size());
    tensor_ = at::from_blob(numbers.data(), {size}, at::kDouble)
                  .to(like.options(), /*non_blocking=*/false, /*copy=*/true);
    return tensor_;
  }

 private:
  const Value list_;
  at::Tensor tensor_;
};

/// The least number of outputs and targets that a loss takes.
struct Takes {
  size_t outputs = 1, targets = 1;
};

/// The base of all losses here. It throws ConfigError for too few outputs or targets, and turns
/// LibTorch's errors into ConfigErrors that show both shapes.
class TorchLoss : public Loss {
 public:
  explicit TorchLoss(const LayerSpec& spec, Takes takes = {})
      : type_(spec.type), sums_(spec.args["reduction"].as_string() == "sum"), takes_(takes) {}

  LossValue Compute(const Tensors& output, const Tensors& target) final {
    if (output.size() < takes_.outputs || target.size() < takes_.targets) {
      throw ConfigError(Str(type_, ": expected ", CountsText(takes_.outputs, takes_.targets),
                            ", got ", CountsText(output.size(), target.size())));
    }
    try {
      LossValue value = Of(output, target);
      if (sums_) value = {value.sum, 0};
      return value;
    } catch (const c10::Error& error) {
      const auto shape = [](const Tensors& t) { return t.empty() ? "none" : ShapeOf(t[0]); };
      throw ConfigError(Str(type_, " of the output ", shape(output), " and the target ",
                            shape(target), ": ", error.what_without_backtrace()));
    }
  }

 protected:
  virtual LossValue Of(const Tensors& outputs, const Tensors& targets) = 0;
  const std::string& type() const { return type_; }

 private:
  static std::string CountsText(size_t outputs, size_t targets) {
    return Str(Plural(static_cast<int64_t>(outputs), "output"), " and ",
               Plural(static_cast<int64_t>(targets), "target"));
  }

  const std::string type_;
  const bool sums_;
  const Takes takes_;
};

/// CrossEntropyLoss and NLLLoss.
class ClassLoss : public TorchLoss {
 public:
  ClassLoss(const LayerSpec& spec, std::shared_ptr<AxisComm> axis)
      : TorchLoss(spec),
        axis_(spec.input_shard ? std::move(axis) : nullptr),
        weight_(spec.args["weight"]),
        ignore_index_(spec.args["ignore_index"].as_int()),
        class_dim_(GivenClassDim(spec)),
        takes_logits_(spec.type == "CrossEntropyLoss"),
        label_smoothing_(takes_logits_ ? spec.args["label_smoothing"].as_double() : 0) {}

  Hits CountHits(const Tensors& output, const Tensors& target) override {
    const at::Tensor& given = target.at(0);
    const at::Tensor whole = WholeOutput(output).at(0);
    const int64_t dim = DimIn(whole.sizes(), given);
    // If the target is probabilities, its label is the most probable class.
    const at::Tensor labels = AreLabels(given) ? given : given.argmax(dim);
    return strata::CountHits(whole.argmax(dim), labels, ignore_index_);
  }

  void CheckTarget(const Tensors& target, at::IntArrayRef output) const override {
    const at::Tensor& labels = target.at(0);
    if (!AreLabels(labels)) return;
    if (ignore_index_ != kNoLabel && labels.eq(kNoLabel).any().item<bool>()) {
      throw ConfigError(Str("the label ", kNoLabel,
                            ", which fills up shorter samples, counts with ",
                            "ignore_index = ", ignore_index_, "; leave ignore_index out, and give ",
                            kNoLabel, " to all labels that do not count"));
    }
    const int64_t classes = output[DimIn(output, labels)];
    RequireIndices(labels.masked_fill(labels.eq(ignore_index_), 0), classes, "label", "classes");
  }

  Tensors WholeOutput(const Tensors& output) override { return {Whole(output.at(0))}; }

 protected:
  LossValue Of(const Tensors& outputs, const Tensors& targets) override {
    const at::Tensor &output = outputs.at(0), &target = targets.at(0);
    if (!axis_) return OfWhole(output, target);
    const std::vector<int64_t> sizes = Part{axis_.get(), -1}.WholeSizes(output.sizes());
    const auto last = static_cast<int64_t>(sizes.size()) - 1;
    if (!AreLabels(target) || DimIn(sizes, target) != last) {
      return OfWhole(Whole(output), target);
    }
    const at::Tensor labels = target.to(at::kLong);
    return Weighed(
        SharedCrossEntropy(output.flatten(0, -2), labels.flatten(), ignore_index_, axis_), labels,
        std::nullopt);
  }

 private:
  int64_t DimIn(at::IntArrayRef output, const at::Tensor& target) const {
    return ClassDim(output, target, class_dim_, type());
  }

  at::Tensor Whole(const at::Tensor& output) const {
    return Cross(output, Crossing::kGather, axis_, -1);
  }

  LossValue OfWhole(const at::Tensor& output, const at::Tensor& target) {
    const OptionalTensor weight = weight_.Like(output);
    if (takes_logits_ && !AreLabels(target)) return OfProbabilities(output, target, weight);
    const auto [scores, labels] = PyTorchForm(output, target, DimIn(output.sizes(), target));
    try {
      return Weighed(Sum(scores, labels, weight), labels, weight);
    } catch (const c10::Error&) {
      if (target.is_cpu()) CheckTarget({target}, output.sizes());  // its message is more specific
      throw;
    }
  }

  at::Tensor Sum(const at::Tensor& scores, const at::Tensor& target, const OptionalTensor& weight) {
    // If the dim of the classes is not the last, CUDA's kernel sums in no fixed order. So it
    // returns single losses, which are summed here.
    const bool apart = scores.is_cuda() && scores.dim() > 2;
    const auto reduction = apart ? at::Reduction::None : at::Reduction::Sum;
    const at::Tensor loss =
        takes_logits_
            ? at::cross_entropy_loss(scores, target, weight, reduction, ignore_index_,
                                     label_smoothing_)
            // Its backward pass refuses scores that are not contiguous.
            : at::nll_loss_nd(scores.contiguous(), target, weight, reduction, ignore_index_);
    return apart ? loss.sum() : loss;
  }

  /// The loss value with its weight: the number of labels that are not ignored, or the sum of their
  /// class weights. Weights are summed in double, where sums of floats are exact, so that the zeros
  /// of ignored labels cannot change the result.
  LossValue Weighed(const at::Tensor& sum, const at::Tensor& labels,
                    const OptionalTensor& weight) const {
    const at::Tensor ignored = labels.eq(ignore_index_);
    const at::Tensor total =
        weight
            ? weight->take(labels.masked_fill(ignored, 0)).masked_fill(ignored, 0).sum(at::kDouble)
            : ignored.logical_not().sum().to(at::kDouble);
    if (total.is_cpu()) return {sum, total.item<double>()};
    return {sum, 0, total};
  }

  /// The loss for a target of class probabilities, in the output's shape.
  LossValue OfProbabilities(const at::Tensor& output, const at::Tensor& target,
                            const OptionalTensor& weight) {
    if (output.sizes() != target.sizes() || output.dim() < 2) {
      throw ConfigError(
          Str(type(), ": expected labels (integers) or probabilities in the output's ",
              "shape, got the target ", ShapeOf(target), " for the output ", ShapeOf(output)));
    }
    const int64_t dim = DimIn(output.sizes(), target);
    return {Sum(output.movedim(dim, 1), target.movedim(dim, 1), weight),
            static_cast<double>(output.numel()) / static_cast<double>(output.size(dim))};
  }

  const std::shared_ptr<AxisComm> axis_;  // null unless each rank has the logits of some classes
  Weights weight_;
  const int64_t ignore_index_;
  const std::optional<int64_t> class_dim_;  // none: the shape of the labels decides
  const bool takes_logits_;
  const double label_smoothing_;
};

// ---- Losses that compare output and target element by element; their mean is over all elements

using T = at::Tensor;
using Args = Value;
constexpr auto kSum = at::Reduction::Sum;

double Number(const Args& args, const char* name) { return args[name].as_double(); }

/// The arguments of an element-wise loss.
struct ElementArgs {
  const Args args;
  Weights weight, pos_weight;
};

struct ElementRow {
  std::string_view type;
  /// The sum over all elements.
  at::Tensor (*sum)(const T& output, const T& target, ElementArgs& args);
};

constexpr ElementRow kElementLosses[] = {
    {"MSELoss", [](const T& o, const T& t, ElementArgs&) { return at::mse_loss(o, t, kSum); }},
    {"L1Loss", [](const T& o, const T& t, ElementArgs&) { return at::l1_loss(o, t, kSum); }},
    {"SmoothL1Loss",
     [](const T& o, const T& t, ElementArgs& a) {
       return at::smooth_l1_loss(o, t, kSum, Number(a.args, "beta"));
     }},
    {"HuberLoss",
     [](const T& o, const T& t, ElementArgs& a) {
       return at::huber_loss(o, t, kSum, Number(a.args, "delta"));
     }},
    {"BCELoss",
     [](const T& o, const T& t, ElementArgs& a) {
       return at::binary_cross_entropy(o, t, a.weight.Like(o), kSum);
     }},
    {"BCEWithLogitsLoss",
     [](const T& o, const T& t, ElementArgs& a) {
       return at::binary_cross_entropy_with_logits(o, t, a.weight.Like(o), a.pos_weight.Like(o),
                                                   kSum);
     }},
    {"KLDivLoss",
     [](const T& o, const T& t, ElementArgs& a) {
       return at::kl_div(o, t, kSum, a.args["log_target"].as_bool());
     }},
    {"PoissonNLLLoss",
     [](const T& o, const T& t, ElementArgs& a) {
       return at::poisson_nll_loss(o, t, a.args["log_input"].as_bool(), a.args["full"].as_bool(),
                                   Number(a.args, "eps"), kSum);
     }},
};

/// Throws ConfigError unless `other` has the output's shape. `what` names it in the message, such
/// as "a target".
void RequireShapeOf(const at::Tensor& output, std::string_view loss, const char* what,
                    const at::Tensor& other) {
  if (other.sizes() == output.sizes()) return;
  throw ConfigError(Str(loss, ": expected ", what, " in the output's shape ",
                        FormatShape(output.sizes()), ", for nothing is broadcast; got ",
                        ShapeOf(other)));
}

class ElementLoss : public TorchLoss {
 public:
  ElementLoss(const LayerSpec& spec, const std::shared_ptr<AxisComm>&)
      : TorchLoss(spec),
        row_(std::ranges::find(kElementLosses, std::string_view(spec.type), &ElementRow::type)),
        args_{spec.args, Weights(Option(spec, "weight")), Weights(Option(spec, "pos_weight"))},
        threshold_(ClassThreshold(spec)) {
    STRATA_CHECK(row_ != std::end(kElementLosses)) << "no loss " << spec.type;
  }

  Hits CountHits(const Tensors& output, const Tensors& target) override {
    if (!threshold_) return Loss::CountHits(output, target);
    const at::Tensor best = output.at(0).gt(*threshold_).to(at::kLong);
    return strata::CountHits(best, TwoClassLabels(output.at(0), target.at(0)), kNoLabel);
  }

 protected:
  LossValue Of(const Tensors& outputs, const Tensors& targets) override {
    const at::Tensor &output = outputs.at(0), &target = targets.at(0);
    RequireShapeOf(output, type(), "a target", target);
    const bool by_sample = args_.args["reduction"].as_string() == "batchmean" && output.dim() > 0;
    return {row_->sum(output, target.to(output.scalar_type()), args_),
            static_cast<double>(by_sample ? output.size(0) : output.numel())};
  }

 private:
  static Value Option(const LayerSpec& spec, const char* name) {
    return spec.args.Has(name) ? spec.args[name] : Value();
  }

  const ElementRow* const row_;
  ElementArgs args_;
  const std::optional<double> threshold_;
};

// ---- Losses of several outputs or targets

/// Gaussian negative log-likelihood (Nix and Weigend, 1994) of outputs (mean, variance). A variance
/// below eps is replaced by eps in the value and in the gradient, as in PyTorch: the clamp is not
/// recorded.
LossValue GaussianNll(const Tensors& output, const Tensors& target, const Args& args) {
  const at::Tensor& mean = output.at(0);
  RequireShapeOf(mean, "GaussianNLLLoss", "a target", target.at(0));
  at::Tensor variance = output.at(1);
  if (variance.lt(0).any().item<bool>())
    throw ConfigError("GaussianNLLLoss: a variance is below 0");
  if (variance.dim() == mean.dim() - 1) variance = variance.unsqueeze(-1);
  variance = variance.clone();
  {
    const at::NoGradGuard no_grad;
    variance.clamp_min_(Number(args, "eps"));
  }
  at::Tensor loss = variance.log().add(mean.sub(target.at(0)).square().div(variance)).mul(0.5);
  if (args["full"].as_bool()) loss = loss.add(0.5 * std::log(2 * std::numbers::pi));
  return {loss.sum(), static_cast<double>(loss.numel())};
}

/// The labels of all samples: of a row of a matrix only those within the row's length. A flat list
/// has no padding.
at::Tensor LabelsWithin(const at::Tensor& labels, const at::Tensor& lengths) {
  if (labels.dim() == 1) return labels;
  const at::Tensor ends = lengths.to(labels.device()).unsqueeze(1);
  return labels.masked_select(at::arange(labels.size(1), ends.options()).lt(ends));
}

/// Connectionist temporal classification (Graves et al., 2006). Targets are labels, lengths of the
/// outputs and lengths of the labels. For reduction="mean" the loss of a sample is divided by the
/// number of its labels.
LossValue Ctc(const Tensors& output, const Tensors& target, const Args& args) {
  const at::Tensor input_lengths = target.at(1).to(at::kLong), lengths = target.at(2).to(at::kLong);
  // ATen uses the labels as memory offsets without checking them.
  RequireIndices(LabelsWithin(target.at(0), lengths), output.at(0).size(2), "label", "classes");
  const at::Tensor losses =
      at::ctc_loss(output.at(0), target.at(0), input_lengths, lengths, args["blank"].as_int(),
                   at::Reduction::None, args["zero_infinity"].as_bool());
  const bool sums = args["reduction"].as_string() == "sum";
  const at::Tensor each = sums ? losses : losses.div(lengths.clamp_min(1).to(losses.device()));
  return {each.sum(), static_cast<double>(losses.numel())};
}

LossValue TripletMargin(const Tensors& output, const Tensors&, const Args& args) {
  for (const size_t other : {1, 2}) {
    RequireShapeOf(output.at(0), "TripletMarginLoss", "positive and negative", output.at(other));
  }
  const at::Tensor losses = at::triplet_margin_loss(
      output.at(0), output.at(1), output.at(2), Number(args, "margin"), Number(args, "p"),
      Number(args, "eps"), args["swap"].as_bool(), at::Reduction::None);
  return {losses.sum(), static_cast<double>(losses.numel())};
}

LossValue CosineEmbedding(const Tensors& output, const Tensors& target, const Args& args) {
  RequireShapeOf(output.at(0), "CosineEmbeddingLoss", "a second output", output.at(1));
  const at::Tensor losses = at::cosine_embedding_loss(output.at(0), output.at(1), target.at(0),
                                                      Number(args, "margin"), at::Reduction::None);
  return {losses.sum(), static_cast<double>(losses.numel())};
}

template <LossValue (*compute)(const Tensors& output, const Tensors& target, const Args& args),
          size_t outputs, size_t targets>
class SeveralLoss : public TorchLoss {
 public:
  SeveralLoss(const LayerSpec& spec, const std::shared_ptr<AxisComm>&)
      : TorchLoss(spec, {outputs, targets}), args_(spec.args) {}

 protected:
  LossValue Of(const Tensors& output, const Tensors& target) override {
    return compute(output, target, args_);
  }

 private:
  const Args args_;
};

template <class T>
std::unique_ptr<Loss> NewLoss(const LayerSpec& spec, const BuildContext& context) {
  return std::make_unique<T>(spec, context.axis);
}

constexpr LossEntry kLosses[] = {
    {"CrossEntropyLoss", NewLoss<ClassLoss>},
    {"NLLLoss", NewLoss<ClassLoss>},
    {"MSELoss", NewLoss<ElementLoss>},
    {"L1Loss", NewLoss<ElementLoss>},
    {"SmoothL1Loss", NewLoss<ElementLoss>},
    {"HuberLoss", NewLoss<ElementLoss>},
    {"BCELoss", NewLoss<ElementLoss>},
    {"BCEWithLogitsLoss", NewLoss<ElementLoss>},
    {"KLDivLoss", NewLoss<ElementLoss>},
    {"PoissonNLLLoss", NewLoss<ElementLoss>},
    {"GaussianNLLLoss", NewLoss<SeveralLoss<GaussianNll, 2, 1>>},
    {"CTCLoss", NewLoss<SeveralLoss<Ctc, 1, 3>>},
    {"TripletMarginLoss", NewLoss<SeveralLoss<TripletMargin, 3, 0>>},
    {"CosineEmbeddingLoss", NewLoss<SeveralLoss<CosineEmbedding, 2, 1>>}};

}  // namespace

void RequireIndices(const at::Tensor& indices, int64_t count, const char* what, const char* whose) {
  if (indices.numel() == 0) return;
  const auto [least, most] = indices.aminmax();
  const int64_t low = least.item().toLong(), high = most.item().toLong();
  if (low >= 0 && high < count) return;
  throw ConfigError(Str("expected a ", what, " from 0 to ", count - 1, ", got ",
                        low < 0 ? low : high, " (there are ", count, " ", whose, ")"));
}

int64_t ClassDim(at::IntArrayRef output, const at::Tensor& target, std::optional<int64_t> given,
                 const std::string& loss) {
  const bool are_labels = AreLabels(target);
  if (!are_labels && (loss != "CrossEntropyLoss" || !target.is_floating_point())) {
    throw ConfigError(Str("expected integer labels, got ", ShapeOf(target)));
  }
  const std::vector<int> fitting = FittingClassDims(output, target.sizes(), are_labels, given);
  if (fitting.size() == 1) return fitting[0];
  const std::string shape = FormatShape(output);
  if (!fitting.empty()) {
    throw ConfigError(SeveralClassDims(output, ShapeOf(target), fitting, loss));
  }
  const std::string dim = given ? std::to_string(*given) : "1 or the last";
  throw ConfigError(Str("expected ", are_labels ? "labels" : "probabilities", " in the shape of ",
                        "the output ", shape,
                        are_labels ? Str(" without its class dim (", dim, ")") : "", ", got ",
                        ShapeOf(target)));
}

Hits CountHits(const at::Tensor& best, const at::Tensor& labels, int64_t ignore_index) {
  const at::Tensor counted = labels.ne(ignore_index);
  const at::Tensor numbers = at::stack({best.eq(labels).logical_and(counted).sum(), counted.sum()});
  if (!numbers.is_cpu()) return {0, 0, numbers};
  const int64_t* both = numbers.const_data_ptr<int64_t>();
  return {both[0], both[1]};
}

at::Tensor TwoClassLabels(const at::Tensor& output, const at::Tensor& target) {
  if (output.sizes() != target.sizes()) {
    throw ConfigError(Str("expected a target in the output's shape ", FormatShape(output.sizes()),
                          ", got ", ShapeOf(target)));
  }
  return target.to(at::kDouble).gt(0.5).to(at::kLong);
}

Hits CountLabelHits(const at::Tensor& output, const at::Tensor& labels,
                    std::optional<int64_t> class_dim) {
  const int64_t dim = ClassDim(output.sizes(), labels, class_dim, "");
  return CountHits(output.argmax(dim), labels, kNoLabel);
}

std::span<const LossEntry> Losses() { return kLosses; }

}  // namespace strata
