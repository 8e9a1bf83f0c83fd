// UnaryLayer: the base of layers with one input tensor and one output tensor.
#pragma once

#include <c10/util/Exception.h>

#include "engine/layers/layer.h"

namespace strata {

class UnaryLayer : public Layer {
 public:
  Tensors Forward(const Tensors& inputs, const Pass& pass) final {
    TORCH_CHECK(inputs.size() == 1, "expects one tensor, got ", inputs.size());
    return {Apply(inputs[0], pass)};
  }

 protected:
  virtual at::Tensor Apply(const at::Tensor& x, const Pass& pass) = 0;
};

}  // namespace strata
