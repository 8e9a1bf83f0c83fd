// Ties: layers that share parameters, declared by strata.tied{"key", layer}. Torch-free.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/job/job.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// All uses of one key.
struct Tie {
  std::string key;
  std::vector<int> layers;  ///< ascending; the first one gives the initial values
};

/// All ties, in the order of keys.
std::vector<Tie> FindTies(const std::vector<LayerSpec>& layers);

/// Checks the ties of a list of layers. Throws ConfigError that names the layers for: a shared
/// parameter that a layer does not have (with the nearest name), uses of a key that share different
/// numbers of parameters or different shapes, and a tied layer inside another layer.
void CheckTies(const std::vector<LayerSpec>& layers);

/// Throws ConfigError when of the uses of a key only some are among the `chosen` layers
/// (ascending). `subject` is the key that chose them: "weights.except".
void CheckWholeTies(const std::vector<LayerSpec>& layers, const std::vector<int>& chosen,
                    std::string_view subject);

/// Checks what ties need of the rest of the job. Throws ConfigError when of the uses of a key only
/// some are frozen, or when they have different optimizer options.
void CheckTieOptions(const Job& job);

}  // namespace strata
