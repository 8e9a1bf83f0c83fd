// Converts elements of one dtype to another.
#pragma once

#include <cstdint>

#include "engine/base/fields/tensor_spec.h"

namespace strata {

/// True if the dtypes are equal, or both are floating.
bool CanConvert(DType from, DType to);

/// Rounds to nearest, ties to even, as PyTorch does; values that are too large become infinite.
/// `target` gets `count` elements. REQUIRES: CanConvert(from, to).
void ConvertElements(DType from, const void* source, DType to, void* target, int64_t count);

}  // namespace strata
