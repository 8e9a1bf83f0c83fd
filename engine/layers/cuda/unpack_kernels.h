// Unpacked() computes the dense matrix of a packed weight (packed_weight.h) on a GPU. Our kernel
// (unpack.cu) does it in one launch; where the kernel does not run, ATen's operators do it.
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

/// Returns the dense elements of the part in new memory, in `type`.
at::Tensor Unpacked(const PackedPart& part, at::ScalarType type);
/// The same by ATen's operators, which need 18 bytes an element for their temporaries.
at::Tensor UnpackedByAten(const PackedPart& part, at::ScalarType type);

}  // namespace strata
