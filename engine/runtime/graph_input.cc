#include "engine/runtime/graph_input.h"

#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "engine/base/check.h"

namespace strata {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// Keeps the gradient that comes.
class GraphInput : public Node {
 public:
  GraphInput() : Node(/*sequence_nr=*/UINT64_MAX) {}  // as soon as it can run, like AccumulateGrad
  variable_list apply(variable_list&& gradients) override {
    gradient_ = std::move(gradients[0]);
    return {};
  }
  at::Tensor Take() { return std::move(gradient_); }

 private:
  at::Tensor gradient_;
};

}  // namespace

void BeginGraph(const at::Tensor& tensor) {
  torch::autograd::set_history(
      tensor, std::shared_ptr<GraphInput>(new GraphInput, torch::autograd::deleteNode));
}

at::Tensor TakeGradient(const at::Tensor& tensor) {
  auto* input = dynamic_cast<GraphInput*>(tensor.grad_fn().get());
  STRATA_CHECK(input) << "no graph was begun";
  at::Tensor gradient = input->Take();
  return gradient.defined() ? gradient : at::zeros_like(tensor);
}

}  // namespace strata
