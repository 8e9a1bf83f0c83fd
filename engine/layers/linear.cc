// The forward y = x W^T + b and the input gradient dx = dy W are computed by the kernels of
// few_rows.h for few rows, else by oneDNN if it is faster (product.h), else by ATen. The weight
// gradient dW += dy^T x is a RowProduct, added straight to the gradient buffer. All three treat the
// leading dims of x as rows.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/linear.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/pad.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/layers/cuda/rows.h"
#include "engine/layers/families.h"
#include "engine/layers/init.h"
#include "engine/layers/kernels/few_rows.h"
#include "engine/layers/kernels/product.h"
#include "engine/layers/kernels/row_product.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/low_rank.h"
#include "engine/layers/packed_weight.h"
#include "engine/layers/unary.h"
#include "engine/layers/weight_node.h"

namespace strata {
namespace {

at::Tensor Rows(const at::Tensor& t) { return t.reshape({-1, t.size(-1)}); }

/// dy as a matrix (rows, out). On CUDA its rows may be padded with zeros to an aligned length
/// (cuda/rows.h).
at::Tensor GradientRows(const at::Tensor& dy, const at::Tensor& weight) {
  const at::Tensor rows = Rows(dy);
  const int64_t missing = rows.is_cuda() ? MissingOfRows(rows, weight.size(1)) : 0;
  return missing == 0 ? rows : at::pad(rows, {0, missing});
}

/// dx = dy W in the shape `x_sizes`. `rows` are GradientRows(); if they are padded, the weight is
/// padded likewise.
at::Tensor InputGradientOf(const at::Tensor& rows, at::Tensor weight, at::IntArrayRef x_sizes) {
  const int64_t more = rows.size(1) - weight.size(0);
  if (more > 0) weight = at::pad(weight, {0, 0, 0, more});
  const bool few = few_rows::Fits(rows, weight);
  return (few ? few_rows::Times(rows, weight) : products::Product(rows, weight)).view(x_sizes);
}

class LinearNode : public WeightNode {
 public:
  explicit LinearNode(const Pass& pass) : stale_(pass.stale) {}

 private:
  at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& x,
                           const at::Tensor& weight) override {
    rows_ = GradientRows(dy, weight);
    return InputGradientOf(rows_, weight, x.sizes());
  }

  std::function<void()> WeightGradient(const at::Tensor& dy, const at::Tensor& x,
                                       const at::Tensor& weight) override {
    at::Tensor rows = std::exchange(rows_, {});
    if (!rows.defined()) rows = GradientRows(dy, weight);
    if (rows.size(1) > weight.size(0)) rows = rows.narrow(1, 0, weight.size(0));
    RowProduct product = {std::move(rows), Rows(x), weight_grad(), bias_grad(), stale_};
    return [product = std::move(product)] { product.Add(); };
  }

  const std::shared_ptr<StaleGradients> stale_;
  at::Tensor rows_;  // GradientRows(), kept from InputGradient() for WeightGradient()
};

at::Tensor Product(const at::Tensor& x, const at::Tensor& weight,
                   const std::optional<at::Tensor>& bias) {
  // A script's function before this layer may return another shape than it did in planning.
  TORCH_CHECK(x.dim() > 0 && x.size(-1) == weight.size(1), "expects last dim ", weight.size(1),
              ", got ", x.sizes());
  const at::Tensor rows = Rows(x);
  const bool few = few_rows::Fits(rows, weight);
  if (!few && !products::UsesOneDnn(rows, weight)) return at::linear(x, weight, bias);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return (few ? few_rows::TimesTransposed : products::TimesTransposed)(rows, weight, bias)
      .view(sizes);
}

at::Tensor FrozenProduct(const at::Tensor& x, const at::Tensor& weight,
                         const std::optional<at::Tensor>& bias) {
  const auto product = [&] { return Product(x, weight, bias); };
  return RecordedFrozen(product, x, weight,
                        [sizes = x.sizes().vec()](const auto& dy, const auto& w) {
                          return InputGradientOf(GradientRows(dy, w), w, sizes);
                        });
}

/// FrozenProduct() with a packed weight, which is dense while a product runs. A bias that learns is
/// added by autograd.
at::Tensor PackedProduct(const at::Tensor& x, const std::shared_ptr<const PackedWeight>& weight,
                         const std::optional<at::Tensor>& bias) {
  const bool learns = bias && bias->requires_grad();
  const auto product = [&] {
    return Product(x, weight->Dense(x.scalar_type()), learns ? std::nullopt : bias);
  };
  const at::Tensor y = RecordedFrozen(
      product, x, /*weight=*/{}, [weight, sizes = x.sizes().vec()](const auto& dy, const auto&) {
        const at::Tensor dense = weight->Dense(dy.scalar_type());
        return InputGradientOf(GradientRows(dy, dense), dense, sizes);
      });
  return learns ? y.add(*bias) : y;
}

class Linear : public UnaryLayer {
 public:
  Linear(int64_t in_features, int64_t out_features, bool bias, Ends ends) : ends_(std::move(ends)) {
    AddParameter("weight", KaimingUniform({out_features, in_features}));
    parameters_[0].only_products = true;
    if (bias) AddParameter("bias", FanInBias(out_features, in_features));
  }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass& pass) override {
    const at::Tensor input = ends_.Enter(x);
    const Parameter* bias = OptionalParameter(1);
    if (!ends_.sums()) return ends_.Leave(ApplyLinear(input, parameters_[0], bias, pass));
    const at::Tensor sum = ends_.Leave(ApplyLinear(input, parameters_[0], nullptr, pass));
    return bias ? sum.add(bias->value) : sum;
  }

 private:
  const Ends ends_;
};

/// With split "column" a rank computes some of the outputs from the whole input. With "row" it
/// computes a summand of all outputs from some of the inputs.
Ends LinearEnds(const LayerSpec& spec, const std::shared_ptr<AxisComm>& axis) {
  const std::string split = SplitOf(spec);
  if (!axis || split.empty()) return {};
  if (split == "column") {
    return {axis, Crossing::kCopy, spec.output_shard ? Crossing::kNone : Crossing::kGather};
  }
  return {axis, spec.input_shard ? Crossing::kNone : Crossing::kScatter, Crossing::kReduce};
}

constexpr LayerEntry kLayers[] = {
    {"Linear", [](const LayerSpec& spec, const BuildContext& context) {
       return NewLinear(spec.Int("in_features"), spec.Int("out_features"), spec.Bool("bias"),
                        LinearEnds(spec, context.axis));
     }}};

}  // namespace

namespace {

at::Tensor ApplyWeight(const at::Tensor& x, const Parameter& weight, const Parameter* bias,
                       const Pass& pass) {
  const auto b = bias ? std::make_optional(bias->value) : std::nullopt;
  if (weight.packed) return PackedProduct(x, weight.packed, b);
  if (weight.frozen && !(b && b->requires_grad())) return FrozenProduct(x, weight.value, b);
  // If the weight is frozen but the bias learns (as in a tie), autograd computes the bias gradient.
  const auto product = [&] {
    return weight.frozen ? at::linear(x, weight.value, b) : Product(x, weight.value, b);
  };
  return Recorded<LinearNode>(product, x, weight, bias, pass, pass);
}

}  // namespace

at::Tensor ApplyLinear(const at::Tensor& x, const Parameter& weight, const Parameter* bias,
                       const Pass& pass) {
  at::Tensor y = ApplyWeight(x, weight, bias, pass);
  return weight.low_rank ? AddLowRank(*weight.low_rank, x, std::move(y), pass) : y;
}

std::optional<Parameter> JoinedWeights(std::span<Layer* const> linears) {
  const Parameter& first = linears[0]->parameters()[0];
  int64_t rows = 0, elements = 0;
  for (Layer* const linear : linears) {
    const Parameter& next = linear->parameters()[0];
    if (next.frozen || next.low_rank || !next.grad.defined()) return std::nullopt;
    const auto goes_on = [&](const at::Tensor& one, const at::Tensor& other) {
      return other.is_contiguous() && other.is_alias_of(one) && other.dtype() == one.dtype() &&
             other.storage_offset() == one.storage_offset() + elements;
    };
    if (!goes_on(first.value, next.value) || !goes_on(first.grad, next.grad)) return std::nullopt;
    rows += next.value.size(0);
    elements += next.value.numel();
  }
  const at::NoGradGuard no_grad;
  const auto whole = [&](const at::Tensor& part) {
    return part.variable_data().as_strided({rows, part.size(1)}, {part.size(1), 1});
  };
  Parameter joined = first;
  joined.value = whole(first.value).variable_data().set_requires_grad(true);
  joined.grad = whole(first.grad);
  return joined;
}

std::unique_ptr<Layer> NewLinear(int64_t in_features, int64_t out_features, bool bias, Ends ends) {
  return std::make_unique<Linear>(in_features, out_features, bias, std::move(ends));
}

LayerTable LinearLayers() { return kLayers; }

}  // namespace strata
