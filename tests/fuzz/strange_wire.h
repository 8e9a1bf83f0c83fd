// Strangers at a rank's own connections (engine/comm/transports/wires.h).
#pragma once

#include <string_view>

namespace strata::fuzz {

/// A stranger says these bytes to a listening rank, before the one that it waits for comes and is
/// let in. Aborts where the stranger is taken for that one.
void MeetStrangeGuest(std::string_view bytes);

/// Somebody who listens where a rank was expected says these bytes to the one that comes. Throws
/// PeerError; aborts where the rank takes them for an answer.
void MeetStrangeHost(std::string_view bytes);

}  // namespace strata::fuzz
