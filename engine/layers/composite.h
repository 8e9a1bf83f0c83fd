// CompositeLayer: a layer made of other layers.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/layers/layer.h"

namespace strata {

/// Its parameters and buffers are its own, followed by those of its child layers in the order of
/// adoption, named "child.weight". The tensors are shared with the children. When the stage
/// replaces them in this layer, OnBound() passes the new ones on to the children.
class CompositeLayer : public Layer {
 public:
  void OnBound() override;

 protected:
  /// Takes `layer` as a child and returns it. REQUIRES: the layer's own parameters were added
  /// before, or it is the only child.
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
