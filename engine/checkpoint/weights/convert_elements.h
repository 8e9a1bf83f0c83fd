// Elements of one dtype become those of another.
#pragma once

#include <cstdint>

#include "engine/base/fields/tensor_spec.h"

namespace strata {

/// Whether they can: the dtypes are equal, or both are floating.
bool CanConvert(DType from, DType to);

/// Rounds to the nearest, to even where two are equally near, as PyTorch does; what is too large
/// becomes infinite. REQUIRES: CanConvert().
void ConvertElements(DType from, const void* source, DType to, void* target, int64_t count);

}  // namespace strata
