// How many messages of a link may be on their way: links obey it, predictions count their memory.
#pragma once

namespace strata {

/// Sends of one link that may not have left yet; each keeps its tensor alive. Ranks of one machine
/// that read each other's memory keep to no number: a sender that is far ahead keeps more.
inline constexpr int kOutstandingSends = 4;

}  // namespace strata
