// PeerError: the error of a rank that lost another rank.
#pragma once

#include "engine/base/error.h"

namespace strata {

/// Another rank could not be reached: it died, or it failed and closed its connections. This error
/// is only a consequence. The cause is what ended the other rank; the launcher may learn it later,
/// and then reports it instead.
class PeerError : public WorldError {
 public:
  using WorldError::WorldError;
};

}  // namespace strata
