// Layers computed by a script: functions, and layers made by the user, with the layers inside them.
// Internal to lua/engine/.
#pragma once

#include <memory>

#include "engine/layers/layer.h"
#include "lua/core/core.h"

namespace strata::lua {

/// Makes the layer for a function, or for a layer of strata.layer. `script` builds the layers
/// inside it, which share the thread's model axis (axis_scope.h).
std::unique_ptr<Layer> MakeScriptLayer(State& state, LayerScript& script, const LayerSpec& spec);

/// Gives a built-in layer the functions of its spec. With spec.tied_forward, the result is a layer
/// with that forward. Otherwise it is the layer itself, after spec.init, a function(layer), has set
/// its initial values.
std::unique_ptr<Layer> DressLayer(State& state, const LayerSpec& spec,
                                  std::unique_ptr<Layer> layer);

}  // namespace strata::lua
