// A node of autograd's graph that stores the gradient which arrives at it.
#include "engine/runtime/stage/graph_input.h"

#include <ATen/ops/full.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/check.h"

namespace strata {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// Stores the gradient that arrives, unchanged.
class GraphInput : public Node {
 public:
  GraphInput() : Node(/*sequence_nr=*/UINT64_MAX) {}  // runs as soon as it can, like AccumulateGrad
  variable_list apply(variable_list&& gradients) override {
    gradient_ = std::move(gradients[0]);
    return {};
  }
  at::Tensor Take() { return std::move(gradient_); }

 private:
  at::Tensor gradient_;
};

at::Tensor AbsentLike(const at::Tensor& tensor) {
  const std::vector<int64_t> no_strides(tensor.dim());
  return at::full({}, -0.0, tensor.options()).as_strided(tensor.sizes(), no_strides);
}

}  // namespace

void BeginGraph(const at::Tensor& tensor) {
  torch::autograd::set_history(
      tensor, std::shared_ptr<GraphInput>(new GraphInput, torch::autograd::deleteNode));
}

bool BeginsGraph(const at::Tensor& tensor) {
  return dynamic_cast<GraphInput*>(tensor.grad_fn().get()) != nullptr;
}

at::Tensor TakeGradient(const at::Tensor& tensor) {
  if (!tensor.grad_fn()) return AbsentLike(tensor);
  auto* input = dynamic_cast<GraphInput*>(tensor.grad_fn().get());
  STRATA_CHECK(input) << "no graph was begun";
  at::Tensor gradient = input->Take();
  return gradient.defined() ? gradient : AbsentLike(tensor);
}

bool IsAbsent(const at::Tensor& gradient) {
  if (gradient.dim() == 0 || gradient.numel() == 0 || !gradient.device().is_cpu()) return false;
  if (std::ranges::any_of(gradient.strides(), [](int64_t stride) { return stride != 0; }))
    return false;
  const auto value = gradient.as_strided({}, {}).item<double>();
  return value == 0 && std::signbit(value);
}

}  // namespace strata
