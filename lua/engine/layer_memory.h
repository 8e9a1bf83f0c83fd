// What a layer's passes allocate. Internal to lua/.
#pragma once

#include <functional>

#include "engine/layers/layer.h"
#include "engine/spec/layers/script.h"

namespace strata::lua {

/// Runs the layer forward and backward on zeros of these shapes, in training, on this thread alone,
/// and counts. So what is kept is exact: views of one memory once, masks and indices, nothing for
/// parameters. Lua's garbage counts as scratch, as much of it as lies around between collections.
/// `collect` makes Lua free what nobody needs any more. Throws what the layer throws.
LayerMemory MemoryOfLayer(Layer& layer, const TensorSpecs& inputs,
                          const std::function<void()>& collect);

}  // namespace strata::lua
