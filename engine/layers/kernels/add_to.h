// AddTo(): adds a gradient in half precision to a sum in float32.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

/// sum += addend, with the same bits as sum.add_(addend). If the types differ, ATen's add_() on a
/// CPU copies the whole addend to the sum's type first; this function converts 2^18 elements (1 MiB
/// of float32) at a time.
void AddTo(const at::Tensor& sum, const at::Tensor& addend);

}  // namespace strata
