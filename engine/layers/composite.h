// CompositeLayer: a layer made of other layers.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/layers/layer.h"

namespace strata {

/// Its parameters and buffers are its own first, then those of the layers that it adopts, in that
/// order and named "child.weight". They are the children's tensors; what the stage puts in their
/// place reaches the children through OnBound().
class CompositeLayer : public Layer {
 public:
  void OnBound() override;

 protected:
  /// REQUIRES: the layer's own parameters were added before.
  template <class LayerType>
  LayerType* Adopt(const std::string& name, std::unique_ptr<LayerType> layer) {
    LayerType* adopted = layer.get();
    Take(name, std::move(layer));
    return adopted;
  }

 private:
  struct Child {
    std::unique_ptr<Layer> layer;
    size_t first_parameter;
    size_t first_buffer;
  };
  void Take(const std::string& name, std::unique_ptr<Layer> layer);

  std::vector<Child> children_;
};

}  // namespace strata
