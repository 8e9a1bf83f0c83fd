// The script's list of layers, made flat. Used by BuildJob only.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/build_job.h"

namespace strata {

struct LayerList {
  std::vector<LayerSpec> layers;
  std::vector<int> cuts;  ///< the layers before which strata.cut() stands, ascending
};

/// Throws ConfigError: no layer, a loss among the layers, two layers of one name, a name that looks
/// like an index, ties that do not fit (ties.h), a connection with one end (FindConnections()), a
/// cut at an end or twice at one place. `where`: the job's place.
LayerList FlattenLayers(const RawLayer& raw, const std::string& where);

}  // namespace strata
