// What the engine needs of the script once tensors are there. Implemented by lua/.
#pragma once

#include <cstdint>

#include "engine/data/data_script.h"
#include "engine/layers/layer.h"
#include "engine/layers/script.h"

namespace strata {

/// One micro-batch: what the first stage eats and what the loss compares with. dim 0 is the batch.
struct MicroBatch {
  Tensors input;
  Tensors target;
  /// 0 where there is no input, or one without a batch dim.
  int64_t rows() const { return input.empty() || input[0].dim() == 0 ? 0 : input[0].size(0); }
};

class EngineScript : public Script, public LayerScript, public DataScript {
 public:
  /// Calls a data function(i) -> input, target. Random draws inside come from (job seed, i), so
  /// that the first and the last stage agree.
  virtual MicroBatch CallData(const FunctionRef& function, int64_t i, int64_t job_seed) = 0;
};

}  // namespace strata
