// What config.json beside published weights says of a model and its tensors do not tell: heads,
// rotary positions, epsilons. A map's config knows where a job's layers say it.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoint/weights/mapped_weights.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// "Type.name": an argument of the first layer of this type, in the layers (LayerSpec::ToValue())
/// or inside them; null = none.
Value ArgumentOf(const Value& layers, const std::string& argument);

/// What config.json says otherwise than the job's layers, a line each; empty where the source is no
/// folder with such a file, or the map knows nothing of it.
std::vector<std::string> ConfigNotes(const MappedWeights& weights,
                                     const std::vector<LayerSpec>& layers);

}  // namespace strata
