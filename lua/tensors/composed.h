// Functions of torch.nn.functional that take several operators, as operators like any other: with
// its names, order and defaults. Internal to lua/tensors/.
#pragma once

#include <torch/library.h>

namespace strata::lua {

/// Where the dispatcher keeps them, as it keeps its own in "aten".
inline constexpr char kComposedNamespace[] = "strata_functional";

/// Tells LibTorch's dispatcher of them. At most once at a time; they are gone with what it returns.
torch::Library ComposedOperators();

}  // namespace strata::lua
