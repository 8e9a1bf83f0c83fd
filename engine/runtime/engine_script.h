// EngineScript: what the engine needs of the script besides what planning needs: it works with
// tensors. Implemented by lua/.
#pragma once

#include <cstdint>

#include "engine/data/data_script.h"
#include "engine/layers/layer.h"
#include "engine/layers/script.h"

namespace strata {

/// One micro-batch: the input of the first stage, and the target that the loss compares with. Dim 0
/// counts the samples.
struct MicroBatch {
  Tensors input;
  Tensors target;
  /// The number of samples; 0 if there is no input, or if the input has no batch dim.
  int64_t rows() const { return input.empty() || input[0].dim() == 0 ? 0 : input[0].size(0); }
};

class EngineScript : public Script, public LayerScript, public DataScript {
 public:
  /// Calls a data function(i) -> input, target. Random draws inside are seeded by (job_seed, i), so
  /// that the first and the last stage, which may be on different ranks, get the same micro-batch.
  virtual MicroBatch CallData(const FunctionRef& function, int64_t i, int64_t job_seed) = 0;
};

}  // namespace strata
