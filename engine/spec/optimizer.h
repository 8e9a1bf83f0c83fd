// Which options hold for which parameter.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/job.h"

namespace strata {

/// For one layer's parameter, by the name that it has within the layer: the index of the first
/// group that takes it, or -1 when the optimizer's own options hold. A group takes a parameter when
/// its layers are selected (or it names none) and its regular expression is found in the
/// parameter's name or is empty.
int FindParameterGroup(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers,
                       int layer, const std::string& parameter);

/// Throws ConfigError for a group that selects layers which are not there, or whose regular
/// expression is broken.
void CheckParameterGroups(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers);

/// Values that the optimizer keeps of each trainable element beside its value and its gradient.
int CountMoments(const OptimizerSpec& optimizer);

/// Every option of the optimizer as it holds for a group; -1 gives the optimizer's own.
Value GroupOptions(const OptimizerSpec& optimizer, int group);

}  // namespace strata
