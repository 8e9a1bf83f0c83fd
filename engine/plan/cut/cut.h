// Cut: from a job's `partition` key to the bounds of its stages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/job/job.h"
#include "engine/layers/layer_spec.h"
#include "engine/layers/script.h"
#include "engine/plan/cut/partition.h"

namespace strata::partition {

/// Refuses, without looking at any layer, a method that does not exist (the nearest is named).
/// Throws ConfigError.
void CheckMethod(const PartitionSpec& partition);

/// What a method goes by.
enum class GoesBy {
  kLayers,  ///< the list alone: Cut()
  kTime,    ///< what the layers take: "time" and its other name "profile"; cost_cut.h
  kGuess,   ///< what they are predicted to take: "auto"; cost_cut.h
  kMemory,  ///< what stages hold: "memory"; cost_cut.h
};

/// Throws ConfigError: what CheckMethod() refuses.
GoesBy MethodGoesBy(const PartitionSpec& partition);

/// The methods as people write them: "uniform", ..., "type:REGEX".
std::vector<std::string> MethodNames();

/// Throws ConfigError when there are more stages than layers.
void CheckStages(int64_t stages, int64_t layers);

/// The bounds of `stages` stages of this list, none of them empty. `parameters[i]` is the number of
/// trainable elements of layer i. REQUIRES: it goes by kLayers. The methods:
///
///   "uniform"          as many layers on each stage; Uniform()
///   "parameters"       Balanced() by `parameters`
///   "type:REGEX"       Balanced() by 1 for each layer that LayersOfType() (job/select.h)
///                      finds, 0 for the others; fewer of them than stages are allowed
///   "cuts"             partition.bounds as they are
///   "function"         the script's function(layers, stages), layers a list of {index, type, name,
///                      parameters}, returns the bounds; `script` may be null for other methods
///
/// Throws ConfigError: more stages than layers; what CheckMethod() refuses; an expression that is
/// broken or finds no layer; bounds, written or returned, that are not stages + 1 whole numbers
/// which ascend from 0 to the number of layers.
Bounds Cut(const PartitionSpec& partition, const std::vector<LayerSpec>& layers,
           const std::vector<int64_t>& parameters, int stages, Script* script);

}  // namespace strata::partition
