// AddTo(): adds a gradient in half precision to a sum in float32.
#pragma once

#include <ATen/core/Tensor.h>

namespace strata {

/// sum += addend, with the bits of add_(). Where types differ, ATen's add_() makes a whole copy of
/// the addend in the sum's type on a CPU; this one copies a MiB at a time.
void AddTo(const at::Tensor& sum, const at::Tensor& addend);

}  // namespace strata
