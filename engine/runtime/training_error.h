// TrainingError: the training cannot continue although nothing failed (job.nonfinite).
#pragma once

#include "engine/base/error.h"

namespace strata {

/// All ranks find it together, and each throws the same error.
class TrainingError : public WorldError {
 public:
  using WorldError::WorldError;
};

/// Ranks disagree about bits that must be equal (runtime/check/): some rank, its memory or a link
/// gives wrong numbers. The step is not taken.
class CorruptionError : public TrainingError {
 public:
  using TrainingError::TrainingError;
};

}  // namespace strata
