// UnaryLayer: the base of layers with one input tensor and one output tensor.
#pragma once

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
};

}  // namespace strata
