// The autograd node of an operator with a weight and perhaps a bias, whose gradients go straight
// into Parameter::grad (docs/design.md, section 8) instead of into fresh tensors.
//
//   return Recorded<Node>([&] { return op(x, weight, bias); }, x, weight, bias, pass, ...);
//
// Forward:  op runs without autograd, and its output becomes that of a Node.
// Backward: dx is returned to autograd, or not computed where nobody wants it; dweight and dbias
//           are handed as one computation to the pass's WeightGradients. Autograd gets no gradient
//           of the weight (an undefined one), which its AccumulateGrad node accepts.
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

class WeightNode : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) final;
  void release_variables() final;

 protected:
  /// dx, given dy.
  virtual at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& x,
                                   const at::Tensor& weight) = 0;
  /// The computation that adds dweight to `weight_grad()` and dbias to `bias_grad()`. It outlives
  /// the node when it is deferred, so it holds what it needs by value. `x` and `weight` are no part
  /// of the graph any more.
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

/// op(), recorded as a NodeType(args...). `bias` may be null. Where no gradient of the weight is
/// collected (none wanted, weight frozen, nothing recorded) ordinary autograd does the right thing.
template <class NodeType, class Operator, class... Args>
at::Tensor Recorded(Operator op, const at::Tensor& x, const Parameter& weight,
                    const Parameter* bias, const Pass& pass, Args&&... args) {
  if (!pass.weight_gradients || weight.frozen || !at::GradMode::is_enabled()) return op();
  at::Tensor y;
  {
    const at::NoGradGuard no_grad;
    y = op().variable_data();  // no view: the layer behind may overwrite it
  }
  std::shared_ptr<WeightNode> node(new NodeType(std::forward<Args>(args)...),
                                   torch::autograd::deleteNode);
  node->Save(x, weight, bias, pass);
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace strata
