// The number of messages of a link that may be in flight. The links enforce it, and the predictions
// of memory count the tensors that they hold.
#pragma once

namespace strata {

/// The most sends of one link that may be unfinished; each keeps its tensor alive. Ranks of one
/// machine that read each other's memory have no such limit: a sender that is far ahead holds more
/// tensors.
inline constexpr int kOutstandingSends = 4;

}  // namespace strata
