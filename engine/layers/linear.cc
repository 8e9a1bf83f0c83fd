#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/linear.h"

#include <ATen/ops/linear.h>

#include <optional>
#include <string>
#include <utility>

#include "engine/layers/families.h"
#include "engine/layers/init.h"
#include "engine/layers/unary.h"
#include "engine/layers/weight_node.h"
#include "engine/spec/layers.h"

namespace strata {
namespace {

class LinearNode : public WeightNode {
  at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& x,
                           const at::Tensor& weight) override {
    return Rows(dy).mm(weight).view_as(x);
  }

  std::function<void()> WeightGradient(const at::Tensor& dy, const at::Tensor& x,
                                       const at::Tensor&) override {
    return [dy = Rows(dy), x = Rows(x), dweight = weight_grad(), dbias = bias_grad()] {
      dweight.addmm_(dy.t(), x);
      if (dbias.defined()) dbias.add_(dy.sum(0));
    };
  }

  static at::Tensor Rows(const at::Tensor& t) { return t.reshape({-1, t.size(-1)}); }
};

class Linear : public UnaryLayer {
 public:
  Linear(int64_t in_features, int64_t out_features, bool bias, Ends ends) : ends_(std::move(ends)) {
    AddParameter("weight", KaimingUniform({out_features, in_features}));
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

/// Column: every rank computes some outputs from the whole input; row: a summand of all outputs,
/// from some inputs.
Ends LinearEnds(const LayerSpec& spec, const std::shared_ptr<AxisComm>& axis) {
  const std::string split = SplitOf(spec);
  if (!axis || split.empty()) return {};
  if (split == "column") {
    return {axis, Crossing::kCopy, spec.gives ? Crossing::kNone : Crossing::kGather};
  }
  return {axis, spec.takes ? Crossing::kNone : Crossing::kScatter, Crossing::kReduce};
}

}  // namespace

at::Tensor ApplyLinear(const at::Tensor& x, const Parameter& weight, const Parameter* bias,
                       const Pass& pass) {
  const auto b = bias ? std::make_optional(bias->value) : std::nullopt;
  return Recorded<LinearNode>([&] { return at::linear(x, weight.value, b); }, x, weight, bias,
                              pass);
}

std::unique_ptr<Layer> NewLinear(int64_t in_features, int64_t out_features, bool bias, Ends ends) {
  return std::make_unique<Linear>(in_features, out_features, bias, std::move(ends));
}

std::unique_ptr<Layer> MakeLinear(const LayerSpec& spec, const BuildContext& context) {
  return NewLinear(spec.args["in_features"].as_int(), spec.args["out_features"].as_int(),
                   spec.args["bias"].as_bool(), LinearEnds(spec, context.axis));
}

}  // namespace strata
