// Which options hold for which parameter.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/job/job.h"

namespace strata {

/// A group's `dims` as ParameterGroup has it: 2 and "2" are "==2"; null is "". Throws ConfigError.
std::string ParseDims(const Value& value);

/// For one parameter of a layer, by the name that it has within the layer: the index of the first
/// group that takes it, or -1 when the optimizer's own options hold. A group takes a parameter when
/// all that the group says fits: its layers are selected, its regular expression is found in the
/// name that saves have ("3.weight"; of a tied parameter that of its first use), the parameter has
/// so many dims. REQUIRES: the layer has the parameter.
int FindParameterGroup(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers,
                       int layer, const std::string& parameter);

/// Throws ConfigError for a group that takes no parameter (with the nearest name), selects layers
/// which are not there, or whose regular expression is broken.
void CheckParameterGroups(const OptimizerSpec& optimizer, const std::vector<LayerSpec>& layers);

/// Values that the optimizer keeps of each trainable element beside its value and its gradient.
int CountMoments(const OptimizerSpec& optimizer);

/// Every option of the optimizer as it holds for a group; -1 gives the optimizer's own.
Value GroupOptions(const OptimizerSpec& optimizer, int group);

}  // namespace strata
