// FlattenLayers(): makes the job's flat list of layers from the script's nested list. Only
// BuildJob() uses it.
#pragma once

#include <string>
#include <vector>

#include "engine/job/build_job.h"

namespace strata {

/// The flat list of layers, and the marks made by strata.cut().
struct LayerList {
  std::vector<LayerSpec> layers;
  std::vector<int> cuts;  ///< for each mark, the index of the layer after it; ascending
};

/// Returns the flat list of `raw`; `where` is the job's place. Throws ConfigError for an empty
/// list, a loss among the layers, two layers of the same name, a name that looks like an index,
/// ties that do not fit (ties.h), a connection without its other end (FindConnections()), and a cut
/// at an end of the list or twice at the same place.
LayerList FlattenLayers(const RawLayer& raw, const std::string& where);

}  // namespace strata
