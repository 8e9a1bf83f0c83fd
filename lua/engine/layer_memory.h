// The memory that a layer's passes allocate. Internal to lua/.
#pragma once

#include <functional>

#include "engine/layers/layer.h"
#include "engine/layers/script.h"

namespace strata::lua {

/// Runs the layer forward and backward in training, on zeros of these shapes, and counts the bytes
/// that this thread allocates. So masks and indices that are kept are included, several views of
/// one memory count once, and parameters do not count. Lua's garbage counts as scratch, as much as
/// may exist between two collections. `collect` runs Lua's collector. Throws what the layer throws.
LayerMemory MemoryOfLayer(Layer& layer, const TensorSpecs& inputs,
                          const std::function<void()>& collect);

}  // namespace strata::lua
