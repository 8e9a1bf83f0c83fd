// TypedLayer: a layer with a type of its own (engine/spec/layers/own_type.h).
#pragma once

#include <memory>

#include "engine/layers/composite.h"

namespace strata {

/// Converts floating inputs to `type`, and the outputs of `inside` to the type of the first of
/// them, or to float32 where there is none. The parameters are those of `inside`, under their
/// names, and keep their type whatever the stage computes in.
class TypedLayer : public CompositeLayer {
 public:
  TypedLayer(std::unique_ptr<Layer> inside, at::ScalarType type);

  Tensors Forward(const Tensors& inputs, const Pass& pass) override;
  void CheckInput(const Tensors& inputs) const override { inside_->CheckInput(inputs); }
  /// A converted tensor may be overwritten wherever the tensor itself may be.
  void set_may_overwrite_input(bool may) override { inside_->set_may_overwrite_input(may); }
  OutputMemory output_memory() const override { return inside_->output_memory(); }

 private:
  Layer* const inside_;
  const at::ScalarType type_;
};

}  // namespace strata
