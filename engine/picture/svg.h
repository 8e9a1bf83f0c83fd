// SVG: a picture as one SVG drawing, for documents. Any browser shows it.
#pragma once

#include <string>

#include "engine/picture/picture.h"

namespace strata::picture {

/// The SVG text, of at most kMaxSvgBytes. It shows timelines, memory over time, and the cuts, light
/// or dark as the reader's screen. Details that do not fit are left out, and the drawing says so.
/// An action has its name where there is room. Actions that take no time are not drawn, and
/// neighbours of one kind that are closer than half a pixel become one box. Throws ConfigError as
/// WriteWithin() does.
std::string ToSvg(const Picture& picture);

}  // namespace strata::picture
