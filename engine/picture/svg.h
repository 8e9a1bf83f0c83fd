// SVG: a picture as one drawing that any browser shows, for documents.
#pragma once

#include <string>

#include "engine/picture/picture.h"

namespace strata::picture {

/// Timelines with the names of actions where they fit, memory over time, cuts; light or dark as the
/// reader's screen. At most kMaxBytes: what does not fit is left out, and the drawing says so. What
/// takes no time is not drawn, and neighbours of a kind that are closer than half a pixel become
/// one box. Throws ConfigError as WriteWithin().
std::string ToSvg(const Picture& picture);

}  // namespace strata::picture
