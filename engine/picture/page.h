// Page: a picture as one HTML file. The file contains all it needs and loads nothing. It shows
// timelines that can be zoomed, panned and pointed at, memory over time, and the cuts.
#pragma once

#include <string>

#include "engine/base/value.h"
#include "engine/picture/picture.h"

namespace strata::picture {

/// The HTML text, of at most kMaxPageBytes. Details that do not fit are left out, and the page says
/// so. Throws ConfigError as WriteWithin() does.
std::string ToHtml(const Picture& picture);

/// The data that the page's script reads. To save space, long arrays hold lists, not objects:
///   {"title", "facts": [...], "note", "kinds": ["", "F", ...], "cost_unit",
///    "layer_count", "layers": [[path, type, output, parameters, stage], ...],
///    "stage_count", "stages": [[rank, layers, parameters, cost, bytes in, bytes out], ...],
///    "timelines": [{"name", "in_seconds", "tick", "span", "lane_count", "lanes": [...]}, ...]}
/// A lane has its rank, "before": its memory before the first action or null, "shapes": the
/// different [kind, stage, backward kind, backward stage] of its actions, and one value per action
/// in each of these lists: "shape": an index into them, "micro" and "other": the micro-batches,
/// "gap": the ticks since the action before ended, "took": its own ticks, "memory": by how many
/// bytes it changes.
Value PageData(const Picture& picture, const Detail& detail = {});

}  // namespace strata::picture
