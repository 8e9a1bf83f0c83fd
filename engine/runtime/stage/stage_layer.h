// StageLayer: one built layer of a stage.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/layers/layer.h"

namespace strata {

/// The name that all uses of a tied tensor share; `tensor` is its index among the tensors of the
/// key.
inline std::string TieName(const std::string& key, size_t tensor) {
  return key + "#" + std::to_string(tensor);
}

/// A parameter that several layers share.
struct TiedParameter {
  std::string name;  ///< its name within the layer
  std::string tie;   ///< TieName()
  /// True for the first use in the job, which counts the parameter; other uses are copies.
  bool is_first_use = true;
};

struct StageLayer {
  int index = 0;      ///< in the job's list; orders its parameters
  std::string path;   ///< "3", or its name; used in digests and checkpoints
  std::string label;  ///< for messages: "net.lua:7: layer 3 Linear(64, 10)"
  std::unique_ptr<Layer> layer;
  std::vector<TiedParameter> tied = {};
  int number = -1;  ///< its index in the script's list; -1 if equal to `index`

  /// The number that seeds the layer's random draws. Parts of one layer (parts.h) share it.
  int seeded_as() const { return number < 0 ? index : number; }
};

}  // namespace strata
