// TrainingError: why a training does not go on, where nothing failed.
#pragma once

#include "engine/base/error.h"

namespace strata {

/// All ranks found it together, and each throws the same.
class TrainingError : public WorldError {
 public:
  using WorldError::WorldError;
};

}  // namespace strata
