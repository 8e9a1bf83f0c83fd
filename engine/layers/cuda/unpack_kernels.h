// The dense matrix of a packed weight (packed_weight.h) on a GPU, by our kernel (unpack.cu): one
// launch. By ATen where the kernel does not run.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/layers/packing.h"

namespace strata {

/// `rows` rows of a packed matrix, from its element `first` on. PackedWeight describes the tensors.
struct PackedPart {
  Packing packing;
  at::Tensor codes, scales;
  int64_t first;
  int64_t rows, columns;
};

/// The part in new memory, in `type`.
at::Tensor Unpacked(const PackedPart& part, at::ScalarType type);
/// The same by ATen. Takes 18 bytes an element in passing.
at::Tensor UnpackedByAten(const PackedPart& part, at::ScalarType type);

}  // namespace strata
