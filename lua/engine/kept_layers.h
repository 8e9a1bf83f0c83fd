// Built layers as values of Lua: what an own layer's `self` and an init=function(layer) hold. Calls
// run the layer in C++; fields are its parameters, buffers and parts. Internal to lua/engine/.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/layers/layer.h"
#include "lua/core/bind.h"

namespace strata::lua {

/// The pass that runs a layer's forward right now; null between forwards.
using CurrentPass = std::shared_ptr<const Pass*>;

/// A built layer as a value of Lua: self.attn(x) runs it, self.attn.weight is its parameter. The
/// parts of a container are reached by their positions: self.net[1].weight.
struct KeptLayer {
  std::string path;    ///< "Block.attn"
  std::string prefix;  ///< of the names of its parameters within `layer`: "" for all of it
  LayerSpec spec;
  std::shared_ptr<Layer*> layer;  ///< points to null once its owner is gone
  CurrentPass pass;               ///< its owner's; null for a layer that is not called
  /// Whether a function that learns has read one of its parameters.
  std::shared_ptr<bool> is_read = std::make_shared<bool>(false);
};

/// Those of one owner. Lua may have them for longer.
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
