// Built layers as Lua values: the layers in an own layer's `self`, and the argument of
// init=function(layer). A call runs the layer in C++; its fields are its parameters, buffers and
// parts. Internal to lua/engine/.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/layers/layer.h"
#include "lua/core/bind.h"

namespace strata::lua {

/// The pass of the layer's running forward; null between forwards.
using CurrentPass = std::shared_ptr<const Pass*>;

/// A built layer as a Lua value: self.attn(x) runs it, self.attn.weight is its parameter. Parts of
/// a container are accessed by position: self.net[1].weight.
struct KeptLayer {
  std::string path;    ///< "Block.attn"
  std::string prefix;  ///< of its parameters' names within `layer`; "" = all of `layer`
  LayerSpec spec;
  std::shared_ptr<Layer*> layer;  ///< points to null once the layer's owner is destroyed
  CurrentPass pass;               ///< the owner's pass; null for a layer that cannot be called
  /// True once a function that trains has read one of the layer's parameters.
  std::shared_ptr<bool> is_read = std::make_shared<bool>(false);
};

/// The kept layers of one owner. Lua may keep them longer than the owner lives; then they point to
/// null.
struct KeptLayers {
  KeptLayers() = default;
  ~KeptLayers();
  KeptLayers(const KeptLayers&) = delete;
  KeptLayers& operator=(const KeptLayers&) = delete;
  void Add(std::string path, const LayerSpec& spec, Layer& layer, const CurrentPass& pass);
  std::vector<std::shared_ptr<KeptLayer>> list;
};

template <>
struct TypeOf<KeptLayer> {
  static const ObjectType& Get();
};

}  // namespace strata::lua
