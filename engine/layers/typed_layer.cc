#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/typed_layer.h"

#include <utility>

namespace strata {

TypedLayer::TypedLayer(std::unique_ptr<Layer> inside, at::ScalarType type)
    : inside_(Adopt("", std::move(inside))), type_(type) {
  for (Parameter& parameter : parameters_) {
    parameter.keeps_type = true;
    // Values that no function of init.h made have not the type yet.
    const bool trains = parameter.value.requires_grad();
    parameter.value = parameter.value.detach().to(type).requires_grad_(trains);
  }
  for (LayerBuffer& buffer : buffers_) {
    if (buffer.value.is_floating_point()) buffer.value = buffer.value.to(type);
  }
  OnBound();
}

Tensors TypedLayer::Forward(const Tensors& inputs, const Pass& pass) {
  Tensors taken = inputs;
  at::ScalarType given = at::kFloat;
  for (auto x = taken.rbegin(); x != taken.rend(); ++x) {
    if (!x->is_floating_point()) continue;
    given = x->scalar_type();
    *x = x->to(type_);
  }
  Tensors outputs = inside_->Forward(taken, pass);
  for (at::Tensor& y : outputs) {
    if (y.scalar_type() == type_) y = y.to(given);
  }
  return outputs;
}

}  // namespace strata
