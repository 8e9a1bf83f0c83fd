// Cut: computes the bounds of a job's stages from its `partition` key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/job/job.h"
#include "engine/layers/layer_spec.h"
#include "engine/layers/script.h"
#include "engine/plan/cut/partition.h"

namespace strata::partition {

/// Throws ConfigError if the method does not exist, and tells the nearest one. Looks at no layer.
void CheckMethod(const PartitionSpec& partition);

/// The information that a method uses.
enum class GoesBy {
  kLayers,  ///< the list of layers alone: Cut()
  kTime,    ///< the measured time of the layers: "time", also called "profile"; cost_cut.h
  kGuess,   ///< their predicted time: "auto"; cost_cut.h
  kMemory,  ///< the memory of the stages: "memory"; cost_cut.h
};

/// Throws ConfigError as CheckMethod() does.
GoesBy MethodGoesBy(const PartitionSpec& partition);

/// The names of the methods as users write them: "uniform", ..., "type:REGEX".
std::vector<std::string> MethodNames();

/// Throws ConfigError if there are more stages than layers.
void CheckStages(int64_t stages, int64_t layers);

/// Returns the bounds of `stages` stages of this list, none of them empty. `parameters[i]` is the
/// number of trainable elements of layer i. REQUIRES: the method goes by kLayers. The methods:
///
///   "uniform"          as many layers on each stage; Uniform()
///   "parameters"       Balanced() by `parameters`
///   "type:REGEX"       Balanced() by 1 for each layer that LayersOfType() (job/select.h)
///                      finds, 0 for the others; fewer of them than stages are allowed
///   "cuts"             partition.bounds as they are
///   "function"         the script's function(layers, stages), layers a list of {index, type, name,
///                      parameters}, returns the bounds; `script` may be null for other methods
///
/// Throws ConfigError for more stages than layers, for what CheckMethod() refuses, for an
/// expression that is broken or matches no layer, and for bounds (written or returned) that are not
/// stages + 1 whole numbers which ascend from 0 to the number of layers.
Bounds Cut(const PartitionSpec& partition, const std::vector<LayerSpec>& layers,
           const std::vector<int64_t>& parameters, int stages, Script* script);

}  // namespace strata::partition
