#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/layer.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "engine/layers/losses.h"

namespace strata {

WeightGradients::WeightGradients(std::shared_ptr<WeightGradients> whole,
                                 std::shared_ptr<const bool> at_once)
    : whole_(std::move(whole)), at_once_(std::move(at_once)) {}

void WeightGradients::Add(std::function<void()> compute) {
  if (whole_ && !*at_once_) {
    whole_->Add(std::move(compute));
  } else if (deferred_) {
    kept_.push_back(std::move(compute));
  } else {
    compute();
  }
}

void WeightGradients::Run() {
  const at::NoGradGuard no_grad;
  for (auto& compute : std::exchange(kept_, {})) {
    compute();
    compute = nullptr;  // frees the activations that it held
  }
}

void Layer::OnBound() {
  for (Parameter& parameter : parameters_) {
    if (!parameter.grad.defined()) continue;
    parameter.value.set_grad_dtype(parameter.grad.scalar_type());
    parameter.value.mutable_grad() = parameter.grad;
  }
}

void Layer::AddParameter(std::string name, const at::Tensor& value) {
  parameters_.push_back({.name = std::move(name), .value = value.requires_grad_(true)});
}

const Parameter* Layer::OptionalParameter(size_t index) const {
  return index < parameters_.size() ? &parameters_[index] : nullptr;
}

void AllowOverwriting(std::span<Layer* const> chain, bool first_may) {
  bool may = first_may;
  for (Layer* layer : chain) {
    layer->set_may_overwrite_input(may);
    switch (layer->output_memory()) {
      case OutputMemory::kFresh:
        may = true;
        break;
      case OutputMemory::kKept:
        may = false;
        break;
      case OutputMemory::kInput:
        break;
    }
  }
}

void Layer::CheckInput(const Tensors&) const {}

void Loss::CheckTarget(const Tensors&, at::IntArrayRef) const {}

Hits Loss::CountHits(const Tensors& output, const Tensors& target) {
  return CountLabelHits(output.at(0), target.at(0), std::nullopt);
}

}  // namespace strata
