// One built layer of a stage.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/layers/layer.h"

namespace strata {

/// What all uses of a shared tensor call it; `tensor` counts those of the key.
inline std::string TieName(const std::string& key, size_t tensor) {
  return key + "#" + std::to_string(tensor);
}

/// A parameter that several layers share.
struct TiedParameter {
  std::string name;          ///< within the layer
  std::string tie;           ///< TieName()
  bool is_first_use = true;  ///< of the job: it is counted, others are copies
};

struct StageLayer {
  int index = 0;      ///< in the job's list: orders its parameters
  std::string path;   ///< "3", or its name: in digests and checkpoints
  std::string label;  ///< for messages: "net.lua:7: layer 3 Linear(64, 10)"
  std::unique_ptr<Layer> layer;
  std::vector<TiedParameter> tied = {};
  int number = -1;  ///< in the script's list; -1: as `index`

  /// What seeds its random numbers, which parts of a layer (parts.h) share.
  int seeded_as() const { return number < 0 ? index : number; }
};

}  // namespace strata
