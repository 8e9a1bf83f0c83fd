#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/losses.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/nll_loss_nd.h>
#include <c10/util/Exception.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/axis/crossing.h"
#include "engine/layers/axis/shared_cross_entropy.h"
#include "engine/layers/families.h"

namespace strata {
namespace {

std::string ShapeOf(const at::Tensor& t) {
  return Str(c10::toString(t.scalar_type()), " ", FormatShape(t.sizes()));
}

bool AreLabels(const at::Tensor& target) {
  return c10::isIntegralType(target.scalar_type(), false);
}

/// True when `labels` has the shape of `output` without `dim`.
bool FitsWithout(at::IntArrayRef output, const at::Tensor& labels, int64_t dim) {
  std::vector<int64_t> shape = output.vec();
  shape.erase(shape.begin() + dim);
  return labels.sizes() == at::IntArrayRef(shape);
}

/// Output and labels in the form that PyTorch's losses take: classes in dim 1, labels int64.
std::pair<at::Tensor, at::Tensor> PyTorchForm(const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor labels = target.to(at::kLong);
  if (ClassDim(output.sizes(), target) == 1) return {output, labels};
  return {output.reshape({-1, output.size(-1)}), labels.reshape({-1})};
}

using OptionalTensor = std::optional<at::Tensor>;

/// A list of numbers as a tensor with the device and dtype of `like`; none when the list is null.
OptionalTensor Weights(const Value& list, const at::Tensor& like) {
  if (list.is_null()) return std::nullopt;
  std::vector<double> numbers;
  for (const Value& number : list.as_list()) numbers.push_back(number.as_double());
  const auto size = static_cast<int64_t>(numbers.size());
  return at::from_blob(numbers.data(), {size}, at::kDouble)
      .to(like.options(), /*non_blocking=*/false, /*copy=*/true);
}

/// A loss of one output and one target. Torch's errors become ConfigErrors with both shapes.
class PairLoss : public Loss {
 public:
  explicit PairLoss(const LayerSpec& spec)
      : type_(spec.type), sums_(spec.args["reduction"].as_string() == "sum") {}

  LossValue Compute(const Tensors& output, const Tensors& target) final {
    try {
      LossValue value = SumAndWeight(output.at(0), target.at(0));
      if (sums_) value.weight = 0;
      return value;
    } catch (const c10::Error& error) {
      throw ConfigError(Str(type_, " of the output ", ShapeOf(output[0]), " and the target ",
                            ShapeOf(target[0]), ": ", error.what_without_backtrace()));
    }
  }

 protected:
  virtual LossValue SumAndWeight(const at::Tensor& output, const at::Tensor& target) = 0;
  const std::string& type() const { return type_; }

 private:
  const std::string type_;
  const bool sums_;
};

/// CrossEntropyLoss and NLLLoss.
class ClassLoss : public PairLoss {
 public:
  ClassLoss(const LayerSpec& spec, std::shared_ptr<AxisComm> axis)
      : PairLoss(spec),
        axis_(spec.input_shard ? std::move(axis) : nullptr),
        weight_(spec.args["weight"]),
        ignore_index_(spec.args["ignore_index"].as_int()),
        takes_logits_(spec.type == "CrossEntropyLoss"),
        label_smoothing_(takes_logits_ ? spec.args["label_smoothing"].as_double() : 0) {}

  Hits CountHits(const Tensors& output, const Tensors& target) override {
    return strata::CountHits(WholeOutput(output).at(0), target.at(0), ignore_index_);
  }

  Tensors WholeOutput(const Tensors& output) override { return {Whole(output.at(0))}; }

 protected:
  LossValue SumAndWeight(const at::Tensor& output, const at::Tensor& target) override {
    if (!axis_) return OfWhole(output, target);
    const std::vector<int64_t> sizes = Part{axis_.get(), -1}.WholeSizes(output.sizes());
    const auto last = static_cast<int64_t>(sizes.size()) - 1;
    if (!AreLabels(target) || ClassDim(sizes, target) != last) {
      return OfWhole(Whole(output), target);
    }
    const at::Tensor labels = target.to(at::kLong);
    return {SharedCrossEntropy(output.flatten(0, -2), labels.flatten(), ignore_index_, axis_),
            TotalWeight(labels, std::nullopt)};
  }

 private:
  at::Tensor Whole(const at::Tensor& output) const {
    return Cross(output, Crossing::kGather, axis_, -1);
  }

  LossValue OfWhole(const at::Tensor& output, const at::Tensor& target) {
    const OptionalTensor weight = Weights(weight_, output);
    if (takes_logits_ && !AreLabels(target)) return OfProbabilities(output, target, weight);
    const auto [scores, labels] = PyTorchForm(output, target);
    const at::Tensor sum = Sum(scores, labels, weight);
    return {sum, TotalWeight(labels, weight)};
  }

  at::Tensor Sum(const at::Tensor& scores, const at::Tensor& target, const OptionalTensor& weight) {
    if (takes_logits_) {
      return at::cross_entropy_loss(scores, target, weight, at::Reduction::Sum, ignore_index_,
                                    label_smoothing_);
    }
    return at::nll_loss_nd(scores, target, weight, at::Reduction::Sum, ignore_index_);
  }

  double TotalWeight(const at::Tensor& labels, const OptionalTensor& weight) const {
    const at::Tensor counted = labels.ne(ignore_index_);
    if (!weight) return static_cast<double>(counted.sum().item<int64_t>());
    return weight->take(labels.masked_select(counted)).sum(at::kDouble).item<double>();
  }

  /// The loss for a target of class probabilities: the output's shape, with the classes in dim 1.
  LossValue OfProbabilities(const at::Tensor& output, const at::Tensor& target,
                            const OptionalTensor& weight) {
    if (output.sizes() != target.sizes() || output.dim() < 2) {
      throw ConfigError(
          Str(type(), ": expected labels (integers) or probabilities in the output's ",
              "shape, got the target ", ShapeOf(target), " for the output ", ShapeOf(output)));
    }
    return {Sum(output, target, weight),
            static_cast<double>(output.numel()) / static_cast<double>(output.size(1))};
  }

  const std::shared_ptr<AxisComm> axis_;  // set when each rank has some of the classes
  const Value weight_;
  const int64_t ignore_index_;
  const bool takes_logits_;
  const double label_smoothing_;
};

/// A loss that compares output and target element by element. Its mean is over all elements.
class ElementLoss : public PairLoss {
 public:
  ElementLoss(const LayerSpec& spec, const std::shared_ptr<AxisComm>&)
      : PairLoss(spec), args_(spec.args) {}

 protected:
  LossValue SumAndWeight(const at::Tensor& output, const at::Tensor& target) override {
    if (output.sizes() != target.sizes()) {
      throw ConfigError(Str(type(), ": expected a target in the output's shape ",
                            FormatShape(output.sizes()), ", for nothing is broadcast; got ",
                            ShapeOf(target)));
    }
    return {Sum(output, target.to(output.scalar_type())), static_cast<double>(output.numel())};
  }

 private:
  at::Tensor Sum(const at::Tensor& output, const at::Tensor& target) const {
    if (type() == "MSELoss") return at::mse_loss(output, target, at::Reduction::Sum);
    if (type() == "L1Loss") return at::l1_loss(output, target, at::Reduction::Sum);
    STRATA_CHECK(type() == "BCEWithLogitsLoss") << "no loss " << type();
    return at::binary_cross_entropy_with_logits(output, target, Weights(args_["weight"], output),
                                                Weights(args_["pos_weight"], output),
                                                at::Reduction::Sum);
  }

  const Value args_;
};

template <class T>
std::unique_ptr<Loss> NewLoss(const LayerSpec& spec, const BuildContext& context) {
  return std::make_unique<T>(spec, context.axis);
}

constexpr LossEntry kLosses[] = {{"CrossEntropyLoss", NewLoss<ClassLoss>},
                                 {"NLLLoss", NewLoss<ClassLoss>},
                                 {"MSELoss", NewLoss<ElementLoss>},
                                 {"L1Loss", NewLoss<ElementLoss>},
                                 {"BCEWithLogitsLoss", NewLoss<ElementLoss>}};

}  // namespace

int64_t ClassDim(at::IntArrayRef output, const at::Tensor& labels) {
  if (!AreLabels(labels)) {
    throw ConfigError(Str("expected integer labels, got ", ShapeOf(labels)));
  }
  const auto last = static_cast<int64_t>(output.size()) - 1;
  if (last >= 1 && FitsWithout(output, labels, 1)) return 1;
  if (last >= 1 && FitsWithout(output, labels, last)) return last;
  throw ConfigError(Str("expected labels in the shape of the output ", FormatShape(output),
                        " without its class dim (1 or the last), got ", ShapeOf(labels)));
}

Hits CountHits(const at::Tensor& output, const at::Tensor& labels, int64_t ignore_index) {
  const at::Tensor best = output.argmax(ClassDim(output.sizes(), labels));
  const at::Tensor counted = labels.ne(ignore_index);
  return {best.eq(labels).logical_and(counted).sum().item<int64_t>(),
          counted.sum().item<int64_t>()};
}

std::span<const LossEntry> Losses() { return kLosses; }

}  // namespace strata
