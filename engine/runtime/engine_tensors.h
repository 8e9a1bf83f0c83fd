// Definitions of the handles of engine.h, with torch. lua/ fills and reads them.
#pragma once

#include <vector>

#include "engine/runtime/engine.h"
#include "engine/runtime/engine_script.h"

namespace strata {

class MicroBatches {
 public:
  std::vector<MicroBatch> list;
};

class Outputs {
 public:
  std::vector<Tensors> list;
};

}  // namespace strata
