// How many messages of a link may be on their way: links obey it, predictions count their memory.
#pragma once

namespace strata {

/// Sends of one link that may not have left yet; each keeps its tensor alive.
inline constexpr int kOutstandingSends = 4;

}  // namespace strata
