// WeightNode: the autograd node of an operator with a weight and perhaps a bias. Their gradients
// are added straight into Parameter::grad (docs/design.md, section 4), without new tensors.
//
//   return Recorded<Node>([&] { return op(x, weight, bias); }, x, weight, bias, pass, ...);
//
// Forward:  op runs without autograd, and its output is recorded as the output of a Node.
// Backward: dx is returned to autograd, if autograd needs it. dweight and dbias are handed to the
//           pass's WeightGradients as one function. Autograd gets an undefined gradient of the
//           weight, which its AccumulateGrad node accepts.
#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <functional>
#include <memory>
#include <utility>

#include "engine/layers/layer.h"

namespace strata {

/// The base of such nodes. A subclass computes its operator's gradients.
class WeightNode : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) final;
  void release_variables() final;

 protected:
  /// Computes dx.
  virtual at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& x,
                                   const at::Tensor& weight) = 0;
  /// Returns a function that adds dweight to weight_grad() and dbias to bias_grad(). It may outlive
  /// the node, so it captures what it needs by value. `x` and `weight` are detached from the graph.
  virtual std::function<void()> WeightGradient(const at::Tensor& dy, const at::Tensor& x,
                                               const at::Tensor& weight) = 0;
  const at::Tensor& weight_grad() const { return weight_grad_; }
  const at::Tensor& bias_grad() const { return bias_grad_; }  ///< undefined without a bias

 private:
  template <class NodeType, class Operator, class... Args>
  friend at::Tensor Recorded(Operator op, const at::Tensor& x, const Parameter& weight,
                             const Parameter* bias, const Pass& pass, Args&&... args);
  void Save(const at::Tensor& x, const Parameter& weight, const Parameter* bias, const Pass& pass);

  torch::autograd::SavedVariable x_;
  torch::autograd::SavedVariable weight_;
  at::Tensor weight_grad_;
  at::Tensor bias_grad_;
  std::shared_ptr<WeightGradients> sink_;
};

/// The result of op(), recorded as a NodeType(args...). `bias` may be null. If no weight gradient
/// is collected (not wanted, a frozen weight, or autograd is off), op() runs with ordinary
/// autograd.
template <class NodeType, class Operator, class... Args>
at::Tensor Recorded(Operator op, const at::Tensor& x, const Parameter& weight,
                    const Parameter* bias, const Pass& pass, Args&&... args) {
  if (!pass.weight_gradients || weight.frozen || !at::GradMode::is_enabled()) return op();
  at::Tensor y;
  {
    const at::NoGradGuard no_grad;
    y = op().variable_data();  // no view, so the next layer may overwrite it
  }
  std::shared_ptr<WeightNode> node(new NodeType(std::forward<Args>(args)...),
                                   torch::autograd::deleteNode);
  node->Save(x, weight, bias, pass);
  torch::autograd::set_history(y, node);
  return y;
}

using FrozenInputGradient =
    std::function<at::Tensor(const at::Tensor& dy, const at::Tensor& weight)>;

/// The result of op() with a frozen `weight`: only x gets a gradient, and x is not kept. op runs
/// without autograd, as it does for a weight that learns, so that evaluation, prediction and
/// training have the same bits.
at::Tensor RecordedFrozen(const std::function<at::Tensor()>& op, const at::Tensor& x,
                          const at::Tensor& weight, FrozenInputGradient input_gradient);

}  // namespace strata
