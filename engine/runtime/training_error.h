// TrainingError: the training cannot continue although nothing failed (job.nonfinite).
#pragma once

#include "engine/base/error.h"

namespace strata {

/// All ranks find it together, and each throws the same error.
class TrainingError : public WorldError {
 public:
  using WorldError::WorldError;
};

}  // namespace strata
