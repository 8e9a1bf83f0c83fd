// Page: a picture as one HTML file that needs nothing else and reaches for nothing: timelines to
// zoom, pan and point at, memory over time, the cuts.
#pragma once

#include <string>

#include "engine/base/value.h"
#include "engine/picture/picture.h"

namespace strata::picture {

/// At most kMaxBytes; what does not fit is left out, and the page says so. Throws ConfigError as
/// WriteWithin().
std::string ToHtml(const Picture& picture);

/// The page's data. Lists instead of objects where there are many:
///   {"title", "facts": [...], "note", "kinds": ["", "F", ...], "cost_unit",
///    "layer_count", "layers": [[path, type, output, parameters, stage], ...],
///    "stage_count", "stages": [[rank, begin, end, parameters, cost, bytes in, bytes out], ...],
///    "timelines": [{"name", "in_seconds", "tick", "span", "bytes": of a grain, "lane_count",
///                   "lanes": [[rank, code, memory before or null], ...]}, ...]}
Value PageData(const Picture& picture, const Detail& detail = {});

}  // namespace strata::picture
