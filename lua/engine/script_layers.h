// Layers that a script computes: functions, and a user's own layers with the layers inside them.
// Internal to lua/engine/.
#pragma once

#include <memory>

#include "engine/layers/layer.h"
#include "lua/core/core.h"

namespace strata::lua {

/// A function, or a user's own layer. `script` builds the layers that it holds, which share the
/// thread's model axis (axis_scope.h).
std::unique_ptr<Layer> MakeScriptLayer(State& state, LayerScript& script, const LayerSpec& spec);

/// Of a built-in layer: one whose forward is the script's, spec.tied_forward; without that, the
/// layer itself, after spec.init, a function(layer), has set its initial values.
std::unique_ptr<Layer> DressLayer(State& state, const LayerSpec& spec,
                                  std::unique_ptr<Layer> layer);

}  // namespace strata::lua
