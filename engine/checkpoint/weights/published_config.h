// Compares a job's layers with the config.json beside published weights, for facts that tensors do
// not show: heads, rotary positions, epsilons. The `config` of a map says which argument of which
// layer belongs to an entry.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoint/weights/mapped_weights.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// The argument "Type.name" of the first layer of this type, in the layers (LayerSpec::ToValue())
/// or inside them; null if there is none.
Value ArgumentOf(const Value& layers, const std::string& argument);

/// The differences between config.json and the job's layers, one line each. Empty if the source is
/// not a folder with such a file, or the map has no config.
std::vector<std::string> ConfigNotes(const MappedWeights& weights,
                                     const std::vector<LayerSpec>& layers);

}  // namespace strata
