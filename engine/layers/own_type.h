// The type that a layer says for itself (its argument `dtype`), whatever the job's precision is.
#pragma once

#include <optional>

#include "engine/base/fields/tensor_spec.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// The type that the layer keeps its parameters in and computes in; none = the job's. It takes its
/// inputs in any floating type, and gives its outputs in the type of the first of them, or in the
/// job's where no input is floating. So the type between two layers never depends on theirs.
std::optional<DType> OwnType(const LayerSpec& spec);

}  // namespace strata
