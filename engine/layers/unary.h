// UnaryLayer: a layer of one tensor in, one out.
#pragma once

#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/layers/layer.h"

namespace strata {

class UnaryLayer : public Layer {
 public:
  Tensors Forward(const Tensors& inputs, const Pass& pass) final {
    STRATA_CHECK(inputs.size() == 1) << inputs.size() << " tensors for a layer of one";
    return {Apply(inputs[0], pass)};
  }

 protected:
  virtual at::Tensor Apply(const at::Tensor& x, const Pass& pass) = 0;

  /// Adds a trainable parameter. An undefined value (bias=false) adds nothing.
  void AddParameter(std::string name, const at::Tensor& value) {
    if (value.defined()) {
      parameters_.push_back({std::move(name), value.requires_grad_(true), {}, false});
    }
  }
  /// The parameter at `index`, or null when the layer has none there (bias=false).
  const Parameter* OptionalParameter(size_t index) const {
    return index < parameters_.size() ? &parameters_[index] : nullptr;
  }
};

}  // namespace strata
