// The key `freeze`: chooses the layers and parameters of a job that do not learn. Torch-free.
#pragma once

#include "engine/job/job.h"
#include "engine/job/job_keys.h"

namespace strata {

/// Reads `freeze` into job.freeze, and marks the chosen layers and parameters: LayerSpec::frozen
/// for whole layers, LayerSpec::frozen_parameters for others, and `frozen` for the parts of a layer
/// in which nothing learns.
///
/// Layers are chosen as by SelectLayers(), parameters by "parameters:REGEX" on their names in saves
/// (such as "3.weight"). Alternatively a function({index, type, name}) returns true for the layers
/// to freeze, or {except=...} chooses everything else. Throws ConfigError as SelectLayers() does,
/// for an expression that no parameter's name matches, and for a function that does not return a
/// boolean.
/// REQUIRES: job.layers is set.
void Freeze(const JobKeys& keys, Job& job);

/// Marks the parameters with these names within the layer as frozen: the whole layer if they are
/// all that it has.
void FreezeParameters(LayerSpec& layer, std::vector<std::string> names);

}  // namespace strata
