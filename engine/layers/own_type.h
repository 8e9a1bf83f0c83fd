// OwnType(): a layer's own type (its argument `dtype`), which overrides the job's precision.
#pragma once

#include <optional>

#include "engine/base/fields/tensor_spec.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// The type of the layer's parameters and computation; none = the job's. The layer takes inputs of
/// any floating type. It returns outputs in the type of its first floating input, or in the job's
/// type if no input is floating. So the types of tensors between layers do not depend on the
/// layers' own types.
std::optional<DType> OwnType(const LayerSpec& spec);

}  // namespace strata
