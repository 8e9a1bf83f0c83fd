// Ties: layers that share parameters, declared by strata.tied{"key", layer}. Torch-free.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/job/job.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// All layers that share parameters under one key.
struct Tie {
  std::string key;
  std::vector<int> layers;  ///< ascending; the first layer gives the initial values
};

/// All ties, in the order of keys.
std::vector<Tie> FindTies(const std::vector<LayerSpec>& layers);

/// Checks the ties of a list of layers. Throws ConfigError that names the layers for: a shared
/// parameter that a layer does not have (with the nearest name), uses of a key that share different
/// numbers of parameters or different shapes, and a tied layer inside another layer.
void CheckTies(const std::vector<LayerSpec>& layers);

/// Throws ConfigError if only some of the layers of a tie are among the `chosen` layers
/// (ascending). `subject` is the key that chose them, such as "weights.except".
void CheckWholeTies(const std::vector<LayerSpec>& layers, const std::vector<int>& chosen,
                    std::string_view subject);

/// Checks what ties require of the rest of the job. Throws ConfigError if only some layers of a tie
/// are frozen, or if they have different optimizer options.
void CheckTieOptions(const Job& job);

}  // namespace strata
