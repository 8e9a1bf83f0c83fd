// What a layer's passes allocate. Internal to lua/.
#pragma once

#include <functional>

#include "engine/layers/layer.h"
#include "engine/layers/script.h"

namespace strata::lua {

/// Runs the layer forward and backward on zeros of these shapes, in training, and counts what this
/// thread allocates. So masks and indices that are kept count too, several views of one memory
/// count once, and parameters not at all. Lua's garbage counts as scratch: as much of it as lies
/// around between two collections. `collect` runs Lua's collector. Throws what the layer throws.
LayerMemory MemoryOfLayer(Layer& layer, const TensorSpecs& inputs,
                          const std::function<void()>& collect);

}  // namespace strata::lua
