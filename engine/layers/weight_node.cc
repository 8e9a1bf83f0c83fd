#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/weight_node.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include "engine/base/check.h"
#include "engine/base/tensors/late_memory.h"

namespace strata {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

void WeightNode::Save(const at::Tensor& x, const Parameter& weight, const Parameter* bias,
                      const Pass& pass) {
  STRATA_CHECK(weight.grad.defined()) << weight.name << " has no gradient buffer";
  set_next_edges(torch::autograd::collect_next_edges(x, weight.value));
  x_ = SavedVariable(x, /*is_output=*/false);
  weight_ = SavedVariable(weight.value, /*is_output=*/false);
  weight_grad_ = weight.grad;
  if (bias && !bias->frozen) bias_grad_ = bias->grad;
  sink_ = pass.weight_gradients;
}

variable_list WeightNode::apply(variable_list&& grads) {
  variable_list result(num_outputs());
  const at::Tensor& dy = grads[0];
  if (!dy.defined()) return result;
  const at::Tensor x = x_.unpack();
  const at::Tensor weight = weight_.unpack();
  const at::AutoDispatchBelowADInplaceOrView nothing_is_recorded;
  if (task_should_compute_output(0)) result[0] = InputGradient(dy, x, weight);
  sink_->Add([add = WeightGradient(dy, x.variable_data(), weight.variable_data()),
              dweight = weight_grad_, dbias = bias_grad_] {
    NeedMemory(dweight);
    NeedMemory(dbias);
    add();
  });
  return result;
}

void WeightNode::release_variables() {
  x_.reset_data();
  weight_.reset_data();
}

namespace {

class FrozenWeightNode : public torch::autograd::Node {
 public:
  FrozenWeightNode(const at::Tensor& x, const at::Tensor& weight, FrozenInputGradient gradient)
      : torch::autograd::Node(torch::autograd::collect_next_edges(x)),
        weight_(weight, /*is_output=*/false),
        input_gradient_(std::move(gradient)) {}

  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return {at::Tensor()};
    const at::Tensor weight = weight_.unpack();
    const at::AutoDispatchBelowADInplaceOrView nothing_is_recorded;
    return {input_gradient_(grads[0], weight)};
  }
  void release_variables() override { weight_.reset_data(); }

 private:
  SavedVariable weight_;
  const FrozenInputGradient input_gradient_;
};

}  // namespace

at::Tensor RecordedFrozen(const std::function<at::Tensor()>& op, const at::Tensor& x,
                          const at::Tensor& weight, FrozenInputGradient input_gradient) {
  const bool is_enabled = at::GradMode::is_enabled();
  const at::NoGradGuard no_grad;
  at::Tensor y = op();
  if (!is_enabled) return y;
  y = y.variable_data();  // no view, so the next layer may overwrite it
  if (!x.requires_grad()) return y;
  const std::shared_ptr<FrozenWeightNode> node(
      new FrozenWeightNode(x, weight, std::move(input_gradient)), torch::autograd::deleteNode);
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace strata
