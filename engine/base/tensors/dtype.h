// Converts between our dtypes and ATen's scalar types.
#pragma once

#include <c10/core/ScalarType.h>

#include "engine/base/fields/tensor_spec.h"

namespace strata {

at::ScalarType ToScalarType(DType dtype);
/// Throws ConfigError for a type that Strata does not have (complex, quantised).
DType FromScalarType(at::ScalarType type);

}  // namespace strata
