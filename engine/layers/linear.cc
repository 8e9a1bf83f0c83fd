#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/linear.h"

#include <ATen/ops/linear.h>

#include <optional>

#include "engine/layers/families.h"
#include "engine/layers/init.h"
#include "engine/layers/unary.h"
#include "engine/layers/weight_node.h"

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
  Linear(int64_t in_features, int64_t out_features, bool bias) {
    AddParameter("weight", KaimingUniform({out_features, in_features}));
    if (bias) AddParameter("bias", FanInBias(out_features, in_features));
  }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass& pass) override {
    return ApplyLinear(x, parameters_[0], OptionalParameter(1), pass);
  }
};

}  // namespace

at::Tensor ApplyLinear(const at::Tensor& x, const Parameter& weight, const Parameter* bias,
                       const Pass& pass) {
  const auto b = bias ? std::make_optional(bias->value) : std::nullopt;
  return Recorded<LinearNode>([&] { return at::linear(x, weight.value, b); }, x, weight, bias,
                              pass);
}

std::unique_ptr<Layer> NewLinear(int64_t in_features, int64_t out_features, bool bias) {
  return std::make_unique<Linear>(in_features, out_features, bias);
}

std::unique_ptr<Layer> MakeLinear(const LayerSpec& spec, LayerScript*) {
  return NewLinear(spec.args["in_features"].as_int(), spec.args["out_features"].as_int(),
                   spec.args["bias"].as_bool());
}

}  // namespace strata
