// PeerError: what a rank throws that lost another one.
#pragma once

#include "engine/base/error.h"

namespace strata {

/// Another rank could not be reached: it died, or failed and closed its connections. A consequence:
/// whatever ended that rank is the cause, though it may be heard later.
class PeerError : public WorldError {
 public:
  using WorldError::WorldError;
};

}  // namespace strata
