// One built layer of a stage.
#pragma once

#include <memory>
#include <string>

#include "engine/layers/layer.h"

namespace strata {

struct StageLayer {
  int index = 0;      ///< in the job's list: seeds its random numbers, orders its parameters
  std::string path;   ///< "3", or its name: in digests and checkpoints
  std::string label;  ///< for messages: "net.lua:7: layer 3 Linear(64, 10)"
  std::unique_ptr<Layer> layer;
};

}  // namespace strata
