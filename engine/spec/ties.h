// Ties: layers that share tensors by strata.tied{"key", layer}. Torch-free.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/job.h"
#include "engine/spec/layer_spec.h"

namespace strata {

/// The uses of one key.
struct Tie {
  std::string key;
  std::vector<int> layers;  ///< ascending; the first one gives the initial values
};

/// All ties, in the order of keys.
std::vector<Tie> FindTies(const std::vector<LayerSpec>& layers);

/// What of the list alone can be wrong. Throws ConfigError that names the layers: a shared tensor
/// that a layer does not have (with the nearest name), uses that share another number of tensors or
/// other shapes, and a tied layer inside another.
void CheckTies(const std::vector<LayerSpec>& layers);

/// What else of a job can be wrong: uses of a key of which some are frozen and some are not, or
/// that have different optimizer options.
void CheckTieOptions(const Job& job);

}  // namespace strata
